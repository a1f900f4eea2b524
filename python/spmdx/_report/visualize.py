# SPDX-License-Identifier: Apache-2.0
"""A drawing of which device holds what part of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import torch

from spmdx._annotate.sharding import get_sharding
from spmdx._annotate.spec import Sharding
from spmdx._base.arguments import integers
from spmdx._base.cells import running_cell
from spmdx.errors import ShardingError, naming

if TYPE_CHECKING:  # what draws is imported when it draws
    import rich.table

    from spmdx._report.drawing import Drawing

_COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan", "bright_black", "bright_red")


def visualize_sharding(
    tensor: torch.Tensor | tuple[Sequence[int], Sharding], file: IO[str] | None = None
) -> rich.table.Table:
    """Draw which devices hold which part of a tensor, and print it.

    Args:
        tensor: on device "spmdx"; or a pair of a global shape and a sharding. Rank 1 is a row,
            rank 2 a grid; of more dims, all but the last are rows together.
        file: where to print; None means the terminal.

    Returns:
        The table that was printed. A notebook does not show it twice where it ends a cell.

    Raises:
        ShardingError: nothing is known of the tensor's sharding, or it is of another rank than
            the shape.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh, ("data", None))
        >>> table = spmdx.visualize_sharding(x)
        ┌────────┐
        │  0, 1  │
        ├────────┤
        │  2, 3  │
        ├────────┤
        │  4, 5  │
        ├────────┤
        │  6, 7  │
        └────────┘
    """
    import rich.console

    with naming("visualize_sharding"):
        shape, sharding = _described(tensor)
        if sharding is None:
            raise ShardingError(
                "the tensor has no sharding. Expected one that is annotated or computed from "
                "annotated ones. Call spmdx.mark_sharding first."
            )
        if file is not None and not hasattr(file, "write"):
            raise ShardingError(
                f"the file is {file!r}. Expected one that is open for text, or None for the "
                "terminal. Pass sys.stderr, or what open(path, 'w') returned."
            )
        table = _draw(_holders(sharding, shape))
    in_a_cell = None if file is None else False  # rich finds out, or is told where to print
    rich.console.Console(file=file, force_jupyter=in_a_cell).print(table)
    table.printed_in = running_cell() if file is None else None
    return table


def _described(described: Any) -> tuple[tuple[int, ...], Sharding | None]:
    """Shape and sharding of a tensor, or of what is given instead of one."""
    if isinstance(described, torch.Tensor):
        return tuple(described.shape), get_sharding(described)
    is_pair = isinstance(described, tuple | list) and len(described) == 2
    if not is_pair or not isinstance(described[1], Sharding | None):
        raise ShardingError(
            f"the first argument is {described!r}. Expected a tensor, or a pair of a shape and a "
            "sharding. Write ((8, 4), spmdx.get_sharding(tensor))."
        )
    return tuple(integers(described[0], "the shape", "Write (8, 4).")), described[1]


def _holders(
    sharding: Sharding, shape: tuple[int, ...]
) -> dict[tuple[tuple[int, ...], int], list[int]]:
    """Devices by the (row, column) where their part starts; empty parts are left out."""
    cells: dict[tuple[tuple[int, ...], int], list[int]] = {}
    boxes = sharding.boxes(shape)
    for device, box in zip(
        sharding.mesh.device_ids[sharding.positions].tolist(), boxes, strict=True
    ):
        if math.prod(s.stop - s.start for s in box) == 0 and math.prod(shape) != 0:
            continue
        starts = tuple(s.start for s in box)
        cells.setdefault((starts[:-1], starts[-1] if starts else 0), []).append(device)
    return cells


def _draw(cells: dict[tuple[tuple[int, ...], int], list[int]]) -> Drawing:
    from spmdx._report.drawing import Drawing

    rows = sorted({row for row, _ in cells})
    columns = sorted({column for _, column in cells})
    table = Drawing(show_header=False, show_lines=True, padding=(0, 2))
    for _ in columns:
        table.add_column(justify="center")
    for row in rows:
        line = []
        for column in columns:
            devices = cells.get((row, column), [])
            colour = _COLOURS[devices[0] % len(_COLOURS)] if devices else "white"
            line.append(f"[{colour}]{', '.join(map(str, devices))}[/{colour}]")
        table.add_row(*line)
    return table
