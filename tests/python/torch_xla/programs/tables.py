# SPDX-License-Identifier: Apache-2.0
"""Pictures of shardings: a table names the devices of each part."""

import contextlib
import io

import torch
import torch_xla.distributed.spmd as xs
from common import grid, line, refused
from torch_xla.distributed.spmd.debugging import visualize_sharding, visualize_tensor_sharding


def _printed(draw):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        table = draw()
    return table, out.getvalue()


def a_text_is_drawn(devices):
    ids = ",".join(map(str, range(devices)))
    for tile, rows, columns in (((devices, 1), devices, 1), ((1, devices), 1, devices)):
        text = f"{{devices=[{tile[0]},{tile[1]}]{ids}}}"
        table, said = _printed(lambda text=text: visualize_sharding(text, use_color=False))
        assert table.row_count == rows and len(table.columns) == columns
        assert all(f"CPU {i}" in said for i in range(devices))
    with refused(ValueError):
        visualize_sharding("no sharding")


def a_tensor_is_drawn(devices):
    t = torch.ones(8, 8).to("xla")
    xs.mark_sharding(t, grid(devices), (0, 1))
    table, said = _printed(lambda: visualize_tensor_sharding(t, use_color=False))
    assert (table.row_count, len(table.columns)) == grid(devices).mesh_shape
    assert all(f"CPU {i}" in said for i in range(devices))
    whole = torch.ones(8, 8).to("xla")
    xs.mark_sharding(whole, line(devices), (None, None))
    table, said = _printed(lambda: visualize_tensor_sharding(whole, use_color=False))
    assert table.row_count == len(table.columns) == 1
