# SPDX-License-Identifier: Apache-2.0
"""XLA's compiler for the CPU, through jaxlib and without JAX."""

import pathlib
from collections.abc import Iterable, Sequence

import torch

from spmdx._segments.compiler import Compiler, Runs
from spmdx._segments.graph_module import OPS_WITH_PARAMS
from spmdx._segments.machine import processor, version_of
from spmdx._segments.segment import Segment
from spmdx._targets import pjrt
from spmdx._targets.stablehlo import ops_taken, raising, stablehlo_text

_PROGRAM, _TEXT = "segment.xla", "segment.mlir"


class Xla(Compiler):
    """Segments as StableHLO, which XLA compiles.

    Source: https://openxla.org/stablehlo/spec
    """

    name = "xla"
    ops_with_params = OPS_WITH_PARAMS
    dtypes = ("f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "b8")

    def version(self) -> str:
        """Of jaxlib, of the processor, and of threads."""
        return f"{version_of('jaxlib')} {processor()} {torch.get_num_threads()}"

    def ops(self, known: Sequence[str]) -> Iterable[str]:
        """Those that there is StableHLO for.

        Raises:
            ImportError: jaxlib is not installed.
        """
        pjrt.library()
        return ops_taken(known)

    def compile(self, segment: Segment, folder: pathlib.Path) -> None:
        """A program, and the text that it was made of."""
        text = self.code(segment)
        (folder / _TEXT).write_text(text)
        (folder / _PROGRAM).write_bytes(pjrt.compiled(text))

    def code(self, segment: Segment) -> str:
        """StableHLO."""
        return stablehlo_text(segment)

    def load(self, segment: Segment, folder: pathlib.Path) -> Runs:
        """The program, on the client of this process."""
        return raising(pjrt.loaded((folder / _PROGRAM).read_bytes()), len(segment.outputs))
