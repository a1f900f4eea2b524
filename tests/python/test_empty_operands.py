# SPDX-License-Identifier: Apache-2.0
"""Tensors without elements, which no sharding emptied: ops on them give what plain PyTorch does."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from composites import compare

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

MESHES = {"2": (2, 1), "3": (3, 1), "4": (4, 1), "1x3": (1, 3), "2x2": (2, 2), "2x3": (2, 3)}

# Of p: f64[8, 4], which is parts of a sum where the mesh has a second axis, and e: f64[8, 0].
JOINED = {
    "cat": lambda p, e: torch.cat([p, e, p], 1),
    "cat of nothing": lambda p, e: torch.cat([e, e], 1),
    "cat of rows": lambda p, e: torch.cat([p, p[4:4]]),
    "split": lambda p, e: [part * 2 for part in p.split([3, 0, 1], 1)],
    "split and cat": lambda p, e: torch.cat(p.split([3, 0, 1], 1)[::-1], 1),
    "cat and sum": lambda p, e: torch.cat([p, e, p * 2], 1).sum(1),
    "split, cat and sum": lambda p, e: torch.cat(p.split([3, 0, 1], 1), 1).sum(1),
    "stack": lambda p, e: torch.stack([e, e * 2], 1),
    "stack of columns": lambda p, e: torch.stack([p[:, :0], e], 2),
    "where": lambda p, e: torch.where(e > 0, e, p[:, :1]),
    "sum with columns": lambda p, e: e + p[:, 2:2],
    "padded": lambda p, e: F.pad(e, (1, 2), value=3.0),
    "product of no columns": lambda p, e: p + e @ e.new_zeros(0, 4),
    "product to no columns": lambda p, e: p @ p.new_zeros(4, 0),
    "no rows taken": lambda p, e: p[torch.zeros(0, dtype=torch.int64, device=p.device)],
}
REDUCED = {
    "sum": lambda p, e: e.sum(1),
    "sum of columns": lambda p, e: e.sum(0),
    "sum of all": lambda p, e: e.sum() + p.sum(),
    "mean": lambda p, e: e.mean(1).isnan(),
    "mean of all": lambda p, e: e.mean().isnan(),
    "prod": lambda p, e: e.prod(1),
    "amax of columns": lambda p, e: e.amax(0),
    "max of columns": lambda p, e: e.max(0),
    "any": lambda p, e: (e > 0).any(1),
    "all": lambda p, e: (e > 0).all(1),
    "logsumexp": lambda p, e: e.logsumexp(1).isneginf(),
    "variance": lambda p, e: e.var(1).isnan(),
    "softmax": lambda p, e: e.softmax(1),
    "running sum": lambda p, e: e.cumsum(1),
}


@pytest.mark.filterwarnings("ignore")  # of degrees of freedom
@pytest.mark.parametrize("shape", MESHES)
@pytest.mark.parametrize("name", [*JOINED, *REDUCED])
def test_an_op_on_nothing_is_what_it_is_unsharded(name, shape):
    mesh = spmdx.Mesh(range(MESHES[shape][0] * MESHES[shape][1]), MESHES[shape], ("x", "y"))
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(*size, dtype=torch.float64, generator=generator) for size in ((8, 6), (6, 4))
    )
    function = (JOINED | REDUCED)[name]
    specs = [("x", "y"), ("y", None), ("x", None)]
    compare(lambda a, b, e: function(a @ b, e), [a, b, a[:, :0].clone()], mesh, specs)


@pytest.mark.parametrize("sizes", [(2, 0, 3), (0, 5), (4, 0)])
@pytest.mark.parametrize("dim", [0, 1])
def test_parts_of_a_sum_pass_a_cat_with_nothing(sizes, dim):
    shapes = [(size, 4) if dim == 0 else (4, size) for size in sizes]
    operands = [torch.randn(shape) for shape in shapes]
    assert spmdx.check_rule("aten::cat", (operands, dim)).tried > 20


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular"])
def test_nothing_is_padded_along_a_cut_dim(mode, devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    x = torch.zeros(0, 2, 5, dtype=torch.float64)
    compare(lambda x: F.pad(x, (1, 2), mode=mode), [x], mesh, [(None, None, "x")])
