# SPDX-License-Identifier: Apache-2.0
"""Tensors without elements, which no sharding emptied: ops on them give what plain PyTorch does."""

import math

import pytest
import spmdx
import torch
import torch.nn.functional as F
from composites import compare, least_work, run

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


REDUCTIONS = {
    "amax": lambda x, d: x.amax(d),
    "amin that keeps the dim": lambda x, d: x.amin(d, keepdim=True),
    "max": lambda x, d: tuple(x.max(d)),
    "argmax": lambda x, d: x.argmax(d),
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "prod": lambda x, d: x.prod(d),
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "variance": lambda x, d: x.var(d),
    "norm": lambda x, d: torch.linalg.vector_norm(x, 2, d),
    "largest norm": lambda x, d: torch.linalg.vector_norm(x, float("inf"), d),
    "sort": lambda x, d: tuple(x.sort(d)),
    "topk": lambda x, d: tuple(x.topk(1, d)),
    "median": lambda x, d: tuple(x.median(d)),
    "kthvalue": lambda x, d: tuple(x.kthvalue(1, d)),
    "mode": lambda x, d: tuple(x.mode(d)),
    "running product": lambda x, d: x.cumprod(d),
    "running maximum": lambda x, d: tuple(x.cummax(d)),
    "running logsumexp": lambda x, d: x.logcumsumexp(d),
    "any": lambda x, d: (x > 0).any(d),
    "all": lambda x, d: (x > 0).all(d),
    "normalised": lambda x, d: F.normalize(x, dim=d),
    "layer norm": lambda x, d: F.layer_norm(x, x.shape[d:]),
    "cross entropy": lambda x, d: F.cross_entropy(
        x.movedim(d, -1).reshape(math.prod(x.shape) // x.shape[d], x.shape[d]),
        torch.zeros(math.prod(x.shape) // x.shape[d], dtype=torch.int64, device=x.device),
        reduction="none",
    ),
}
SHAPES = [(0, 4), (4, 0), (2, 0, 3), (0, 3, 5), (3, 5, 0), (0, 0), (0, 1)]


def finite(values):
    """Numbers that can be compared, in place of those of no elements."""
    several = values if isinstance(values, tuple) else (values,)
    return [v.nan_to_num(7.0, 8.0, 9.0) if v.is_floating_point() else v for v in several]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_nothing_is_what_it_is_unsharded(name, devices):
    """Over every dim, with every dim cut: what PyTorch refuses is refused on a mesh."""
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    function, ran = REDUCTIONS[name], 0
    for shape in SHAPES:
        x = torch.zeros(shape, dtype=torch.float64)
        for dim in range(len(shape)):
            try:
                function(x, dim)
            except (IndexError, RuntimeError, ZeroDivisionError):
                with pytest.raises((IndexError, RuntimeError, ZeroDivisionError)):
                    run(lambda x, d=dim: function(x, d), [x], "spmdx", mesh, [None])
                continue
            for cut in range(len(shape)):
                spec = tuple("x" if d == cut else None for d in range(len(shape)))
                compare(lambda x, d=dim: finite(function(x, d)), [x], mesh, [spec])
                ran += 1
    assert ran


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize("how", ["prod", "mean", "amax", "amin"])
def test_rows_are_reduced_at_indices_where_a_device_has_one_or_none(how, dtype, devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    y, at = torch.ones(5, 5, dtype=dtype), torch.tensor([0, 1, 1, 0, 4])
    for specs in ((None, "x"), ("x", None), ("x", "x")):
        for dim in (0, 1):
            want = y.index_reduce(dim, at, y * 2, how)
            a, b = (
                spmdx.mark_sharding(t.to("spmdx"), mesh, (spec, None)) if spec else t.to("spmdx")
                for t, spec in zip((y, y * 2), specs, strict=True)
            )
            with least_work():
                assert torch.equal(a.index_reduce(dim, at.to("spmdx"), b, how).cpu(), want)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_a_product_of_nothing_is_seen_as_pairs_of_numbers(devices):
    """What has no elements counts as contiguous, whatever its strides; kernels look at them."""
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))

    def step(device, spec=None):
        x = torch.zeros(0, 4, 1, dtype=torch.complex64, device=device)
        x = spmdx.mark_sharding(x, mesh, spec) if spec else x
        x.requires_grad_()
        pairs = torch.view_as_real(torch.einsum("abk,ack->abc", x, x))
        (pairs * torch.ones(2, device=device)).sum().backward()
        return [pairs.detach().cpu(), x.grad.cpu()]

    for spec in (None, ("x", None, None), (None, "x", None)):
        for got, want in zip(step("spmdx", spec), step("cpu"), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
