# SPDX-License-Identifier: Apache-2.0
"""Compilers of segments: what lies between two collectives, as one kernel."""

from spmdx._segments.compiler import Compiler as Compiler
from spmdx._segments.graph_module import graph_module as graph_module
from spmdx._segments.in_force import get_compiler as get_compiler
from spmdx._segments.in_force import installed as installed
from spmdx._segments.in_force import set_compiler as set_compiler
from spmdx._segments.in_force import wait as wait
from spmdx._segments.segment import Op as Op
from spmdx._segments.segment import Param as Param
from spmdx._segments.segment import Segment as Segment
from spmdx._segments.segment import Type as Type
from spmdx._segments.segment import Value as Value
