# SPDX-License-Identifier: Apache-2.0
"""XLA's compiler for the CPU or a TPU, through jaxlib and without JAX."""

import pathlib
from collections.abc import Iterable, Sequence

import torch

from spmdx._segments.compiler import Compiler, Runs
from spmdx._segments.graph_module import OPS_WITH_PARAMS
from spmdx._segments.machine import processor, version_of
from spmdx._segments.segment import Segment
from spmdx._targets import pjrt, tpu
from spmdx._targets.stablehlo import ops_taken, raising, stablehlo_text

_PROGRAM, _TEXT = "segment.xla", "segment.mlir"


class Xla(Compiler):
    """Segments as StableHLO, which XLA compiles for what ``PJRT_DEVICE`` says.

    For the CPU programs are kept on disk. For a TPU, which one process has, the program's process
    compiles them; nobody has run that.

    Raises:
        ImportError: a TPU is asked for, and libtpu is not installed.
        ShardingError: ``PJRT_DEVICE`` is none, or there is no TPU.

    Source: https://openxla.org/stablehlo/spec
    """

    name = "xla"
    ops_with_params = OPS_WITH_PARAMS
    dtypes: Sequence[str] = (
        *("f32", "f64", "bf16", "f16"),
        *("i64", "i32", "i16", "i8", "u8", "b8"),
    )

    def __init__(self) -> None:
        self._on_tpu = tpu.is_asked_for()
        if self._on_tpu:
            tpu.require()
            self.dtypes = tuple(each for each in self.dtypes if each != "f64")  # TPUs have none

    def version(self) -> str:
        """Of jaxlib, and of the platform: the processor and threads, or libtpu and the chip."""
        if self._on_tpu:
            return " ".join([version_of("jaxlib"), "tpu", version_of("libtpu"), *tpu.chips()[:1]])
        return f"{version_of('jaxlib')} cpu {processor()} {torch.get_num_threads()}"

    def ops(self, known: Sequence[str]) -> Iterable[str]:
        """Those that there is StableHLO for.

        Raises:
            ImportError: jaxlib is not installed.
        """
        pjrt.library()
        return ops_taken(known)

    def compile(self, segment: Segment, folder: pathlib.Path) -> None:
        """The text, and what is made of it for the CPU."""
        text = self.code(segment)
        (folder / _TEXT).write_text(text)
        if not self._on_tpu:
            (folder / _PROGRAM).write_bytes(pjrt.compiled(text))

    def code(self, segment: Segment) -> str:
        """StableHLO."""
        return stablehlo_text(segment)

    def load(self, segment: Segment, folder: pathlib.Path) -> Runs:
        """The program, on the client of this process."""
        if self._on_tpu:
            runs = pjrt.tpu().compiled_and_loaded((folder / _TEXT).read_text())
        else:
            runs = pjrt.loaded((folder / _PROGRAM).read_bytes())
        return raising(runs, len(segment.outputs))
