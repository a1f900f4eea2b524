# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.spmd.debugging: tables that show which device holds which part."""

import re
from typing import Any

import numpy as np
import torch

from spmdx import runtime
from spmdx._xla import state
from spmdx._xla.sharded_tensor import XLAShardedTensor
from spmdx.torch_xla import runtime as xr

_TILED = re.compile(r"\{devices=\[([\d,]+)\]([\d,]+)( last_tile_dim_replicate)?\}")


def visualize_sharding(
    sharding: str,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
) -> Any:
    """A table of ``rich`` in which each cell is a part and names the devices that hold it; printed.

    Args:
        sharding: as XLA writes it.
        use_color: whether cells have colours, where the terminal has.
        scale: how wide the table is.
        min_width: of a cell.
        max_width: of the table.

    Returns:
        The table.

    Raises:
        ValueError: the text is no sharding.
    """
    from rich.console import Console

    rows = _cells(sharding)
    console = Console(width=max_width)
    colored = use_color and bool(console.color_system)
    table = _table(rows, colored, scale, min_width)
    console.print(table)
    return table


def visualize_tensor_sharding(t: Any, **kwargs: Any) -> Any:
    """The table of a tensor's sharding; see :func:`visualize_sharding`.

    Args:
        t: a tensor on the device that has a sharding.
        **kwargs: as for :func:`visualize_sharding`.

    Returns:
        The table.

    Raises:
        ValueError: the tensor has no sharding.
    """
    known = state.sharding_of(t)
    if known is None:
        raise ValueError("the tensor has no sharding. Call mark_sharding first.")
    return visualize_sharding(str(known), **kwargs)


def construct_v1_sharding_str(t: torch.Tensor) -> str:
    """The sharding of a tensor as XLA writes it.

    Args:
        t: a tensor on the device, or an :class:`XLAShardedTensor`.

    Returns:
        A text as ``"{devices=[2,4]0,1,2,3,4,5,6,7}"``.
    """
    known = state.sharding_of(t.global_tensor if isinstance(t, XLAShardedTensor) else t)
    return "" if known is None else str(known)


def _cells(sharding: str) -> list[list[str]]:
    """What stands in the table: rows are parts of dim 0, columns those of dim 1."""
    kind = xr.device_type()
    if sharding == "{replicated}":
        return [[f"{kind} {list(range(runtime.global_runtime_device_count()))}"]]
    found = _TILED.fullmatch(sharding)
    if found is None:
        raise ValueError(f"{sharding!r} is no sharding that a table can show.")
    shape = [int(size) for size in found[1].split(",")]
    grid = np.array([int(device) for device in found[2].split(",")])
    replicas = shape.pop() if found[3] else 1
    if len(shape) == 1:
        shape.append(1)
    if any(size != 1 for size in shape[2:]):
        raise ValueError(f"{sharding!r} cuts more than the two first dims. Expected no more.")
    parts = grid.reshape(shape[0], shape[1], replicas)
    return [[_named(kind, cell.tolist()) for cell in row] for row in parts]


def _named(kind: str | None, devices: list[int]) -> str:
    return f"{kind} {devices[0] if len(devices) == 1 else devices}"


def _table(rows: list[list[str]], colored: bool, scale: float, min_width: int) -> Any:
    from rich import align, box, padding, style
    from rich.table import Table

    table = Table(
        show_header=False,
        show_lines=not colored,
        padding=0,
        highlight=not colored,
        pad_edge=False,
        box=None if colored else box.SQUARE,
    )
    for row in rows:
        cells = [
            padding.Padding(
                align.Align(text, "center", vertical="middle"),
                (1, 1, 1, 1),
                style=style.Style(bgcolor=None, color=None),
            )
            for text in row
        ]
        table.add_row(*cells)
    return table
