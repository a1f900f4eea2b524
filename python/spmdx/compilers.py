# SPDX-License-Identifier: Apache-2.0
"""Compilers of segments: what lies between two collectives, as one kernel."""

from spmdx._compiling.in_force import get_compiler, installed, left, set_compiler, wait
from spmdx._report.ahead import AheadReport, AheadRow, compile_ahead
from spmdx._segments.compiler import Compiler, NotTaken
from spmdx._segments.graph_module import graph_module
from spmdx._segments.segment import Op, Param, Segment, Type, Value
from spmdx._segments.traced import segment_of
from spmdx._targets.hls import Hls, HlsProject, hls_project
from spmdx._targets.onnxruntime import OnnxRuntime

__all__ = [
    "AheadReport",
    "AheadRow",
    "Compiler",
    "Hls",
    "HlsProject",
    "NotTaken",
    "OnnxRuntime",
    "Op",
    "Param",
    "Segment",
    "Type",
    "Value",
    "compile_ahead",
    "get_compiler",
    "graph_module",
    "hls_project",
    "installed",
    "left",
    "segment_of",
    "set_compiler",
    "wait",
]
