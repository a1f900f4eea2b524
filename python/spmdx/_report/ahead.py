# SPDX-License-Identifier: Apache-2.0
"""Segments compiled for chips that are not there: what each would need, or why it is not taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from spmdx._base.cells import Drawn
from spmdx._segments.compiler import NotTaken
from spmdx._segments.one_line import of_error
from spmdx._segments.segment import DTYPES, Segment, Type
from spmdx._targets import iree, pjrt
from spmdx._targets.stablehlo import stablehlo_text
from spmdx._targets.tiles import tiled_bytes
from spmdx.errors import ShardingError, naming

if TYPE_CHECKING:
    import rich.console
    import rich.table

    from spmdx._report.segments import SegmentsReport

PARAM = Type("f64", ())
TPUS = ("v4", "v5e", "v5p", "v6e")


@dataclasses.dataclass(frozen=True)
class AheadRow:
    """One segment, compiled for a chip.

    Attributes:
        source: the user's line of its first op.
        ops: how many there are.
        why: it is not taken; empty if it is.
        tensor_bytes: of its inputs and outputs, as PyTorch counts them.
        tiled_bytes: of the same in tiles of a TPU's registers, as spmdx predicts them.
        argument_bytes, output_bytes, temp_bytes: as the compiler counts them, for TPUs.
        flops: that the compiler counts, for TPUs.
        seconds: that the compiler thinks a run takes, for TPUs, where it knows all of its ops.
        code_bytes: of the artefact, where that is known.
    """

    source: str
    ops: int
    why: str = ""
    tensor_bytes: int = 0
    tiled_bytes: int = 0
    argument_bytes: int = 0
    output_bytes: int = 0
    temp_bytes: int = 0
    flops: float = 0.0
    seconds: float | None = None
    code_bytes: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class AheadReport(Drawn):
    """What became of all segments of a program, for one target; equal ones are one row.

    Attributes:
        target: the chip.
        rows: one for each segment that differs from those before it.
    """

    target: str
    rows: list[AheadRow]

    @property
    def taken(self) -> float:
        """The share of segments that were compiled."""
        return sum(not row.why for row in self.rows) / max(1, len(self.rows))

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Iterator[rich.table.Table]:
        import rich.table

        title = f"{self.taken:.0%} of {len(self.rows)} segments are compiled for {self.target}"
        table = rich.table.Table(
            *(
                "line",
                "ops",
                "tensors",
                "in tiles",
                "arguments",
                "outputs",
                "beside",
                "flops",
                "µs",
                "code",
            ),
            "why",
            title=title,
            title_justify="left",
        )
        for row in self.rows:
            micro = f"{row.seconds * 1e6:.1f}" if row.seconds is not None else ""
            own = row.tensor_bytes, row.tiled_bytes
            counted = row.argument_bytes, row.output_bytes, row.temp_bytes, int(row.flops)
            counts = [f"{number:,}" for number in (*own, *counted)]
            table.add_row(row.source, f"{row.ops}", *counts, micro, f"{row.code_bytes:,}", row.why)
        yield table


def compile_ahead(target: str, segments: SegmentsReport) -> AheadReport:
    """Compile what a program has run for a chip that nobody has to have.

    Nothing of it runs: real chips of these kinds were never used.

    Args:
        target: a TPU and how many there are, as ``"v5e:2x2"`` (``v4``, ``v5e``, ``v5p``, ``v6e``),
            by XLA, or ``"rocm:gfx942"``, ``"vulkan:rdna3"``, ``"cuda:sm_89"``, ``"metal"``, by
            IREE.
        segments: ``spmdx.explain().segments``, of a program that a compiler was in force for.

    Returns:
        A row for each segment.

    Raises:
        ShardingError: there is no such target.
        ImportError: libtpu, jaxlib or IREE is not installed; says what to install.

    Example:
        >>> import spmdx, torch
        >>> total = torch.ones(4).to("spmdx").sum().item()  # by no compiler
        >>> spmdx.compilers.compile_ahead("metal", spmdx.explain().segments).rows
        []
    """
    kind = target.partition(":")[0]
    with naming("compilers.compile_ahead"):
        if kind not in (*TPUS, *iree.BACKENDS):
            raise ShardingError(
                f"{target!r} is no target. Expected one of {', '.join((*TPUS, *iree.BACKENDS))}, "
                "and what of it behind a colon. Write 'v5e:2x2' or 'rocm:gfx942'."
            )
    texts: dict[str, str] = {}
    for row in segments.segments:
        texts.setdefault(row.text, row.source)
    return AheadReport(target, [_row(target, text, source) for text, source in texts.items()])


def _row(target: str, text: str, source: str) -> AheadRow:
    segment = Segment.parse(text)
    kinds = [kind for _, kind in (*segment.inputs, *segment.outputs)]
    row = AheadRow(source, len(segment.ops), tensor_bytes=_bytes(kinds))
    try:
        written = stablehlo_text(segment)
        if target.partition(":")[0] in TPUS:
            found = pjrt.compile_ahead(written, target)
            kinds += [PARAM] * segment.params
            return dataclasses.replace(
                row,
                tiled_bytes=sum(map(tiled_bytes, kinds)),
                argument_bytes=found.argument_bytes,
                output_bytes=found.output_bytes,
                temp_bytes=found.temp_bytes,
                flops=found.flops,
                seconds=found.optimal_seconds if (found.optimal_seconds or -1) >= 0 else None,
            )
        return dataclasses.replace(row, code_bytes=len(iree.compile_for(written, target)))
    except (NotTaken, RuntimeError, ValueError) as error:
        return dataclasses.replace(row, why=of_error(error))


def _bytes(kinds: Sequence[Type]) -> int:
    return sum(torch.Size(k.shape).numel() * DTYPES[k.dtype].itemsize for k in kinds)
