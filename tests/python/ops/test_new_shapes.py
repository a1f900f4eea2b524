# SPDX-License-Identifier: Apache-2.0
"""A shape that is new costs no meta kernel in Python, and has the layout of the CPU's result."""

import sys

import pytest
import spmdx
import torch
import torch.nn.functional as F

BY = torch.tensor([3, 0, 1, 1])
# Each takes a tensor f32[n, 6, 5] laid out in some way.
OPS = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[i, :, i]": lambda x, i: x[i, :, i],
    "x[i, i]": lambda x, i: x[i, i],
    "x[i[:, None], i]": lambda x, i: x[i[:, None], i],
    "index_select": lambda x, i: x.index_select(-2, i),
    "index_put": lambda x, i: x.index_put((i,), x[0] * 2),
    "index_put of columns": lambda x, i: x.index_put((i[:, None], i), x[0, 0], accumulate=True),
    "embedding": lambda x, i: F.embedding(i.view(2, 2), x[0]),
    "where": lambda x, i: torch.where(x > 0, x, x * 2),
    "where of a number": lambda x, i: torch.where(x > 0, x, 0.0),
    "where of a row": lambda x, i: torch.where(x[:, :1] > 0, x[0], x),
    "where of two dtypes": lambda x, i: torch.where(x > 0, x, x.double()),
    "roll": lambda x, i: x.roll(2, 1),
    "roll back": lambda x, i: x.roll(-7, -1),
    "roll of two dims": lambda x, i: x.roll((1, 9), (0, 2)),
    "roll of all": lambda x, i: x.roll(4),
    "roll of nothing": lambda x, i: x[:0].roll(4, 1),
    "arange": lambda x, i: torch.arange(x.shape[0] + 5, device=x.device),
    "sum": lambda x, i: x.sum(),
    "mean": lambda x, i: x.mean(),
    "cdist": lambda x, i: torch.cdist(x[0], x[1], compute_mode="use_mm_for_euclid_dist"),
    "norm": lambda x, i: torch.linalg.vector_norm(x),
    "smooth_l1_loss": lambda x, i: F.smooth_l1_loss(x, x * 2, reduction="none"),
    "fmod": lambda x, i: torch.fmod(x, x + 2),
}
LAYOUTS = {
    "rows": lambda x: x,
    "turned": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "every other": lambda x: torch.cat([x, x], 2)[:, :, ::2],
    "expanded": lambda x: x[:, :1].expand(-1, 6, -1),
}


def made(n, layout, device="cpu"):
    x = torch.randn(n, 6, 5, generator=torch.Generator().manual_seed(n))
    return LAYOUTS[layout](x.to(device)), BY.to(device)


MIXED = {
    "smooth_l1_loss": lambda a, b, c: F.smooth_l1_loss(a, b, reduction="none"),
    "mse_loss": lambda a, b, c: F.mse_loss(a, b, reduction="none"),
    "where": lambda a, b, c: torch.where(c, a, b),
}


@pytest.mark.parametrize(
    "dtypes", [(torch.bfloat16, torch.float64), (torch.float64, torch.float32)]
)
@pytest.mark.parametrize("name", MIXED)
def test_operands_of_two_dtypes_have_the_layout_of_the_cpu(name, dtypes):
    """The CPU's kernel casts an operand first, which may lay it otherwise."""

    def laid(device):
        one, other = (torch.ones(7, 5, dtype=dtype).to(device) for dtype in dtypes)
        condition = torch.ones(5, 1, dtype=torch.bool).to(device)
        yield from (
            MIXED[name](a, b, condition)
            for a, b in (
                (one[0, :, None].expand(5, 7), other.t()),
                (one.t(), other[0, :, None].expand(5, 7)),
                (one.t(), other.t()),
                (one.t(), other.t().contiguous()),
                (one.t(), other[:, 0]),
            )
        )

    for found, wanted in zip(laid("spmdx"), laid("cpu"), strict=True):
        assert found.dtype == wanted.dtype and found.stride() == wanted.stride()


def python_of_torch(call):
    """The functions of torch's Python that compute shapes, while `call` runs."""
    seen = []

    def note(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and any(at in file for at in ("/_refs/", "/_decomp/", "_meta_regi")):
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPS)
def test_a_new_shape_has_the_layout_of_the_cpu(name, layout):
    if layout == "expanded" and "index_put" in name:
        pytest.skip("elements that share an address")
    wanted = OPS[name](*made(7, layout))
    found = OPS[name](*made(7, layout, "spmdx"))
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found.cpu(), wanted)


@pytest.mark.parametrize("name", OPS)
def test_a_new_shape_is_inferred_without_python(name):
    x, i = made(11, "rows", "spmdx")
    spmdx.mark_step()
    assert python_of_torch(lambda: OPS[name](x, i)) == []


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_gradient_of_a_new_shape_is_inferred_without_python(reduction):
    x = torch.randn(13, 6).to("spmdx").requires_grad_()
    loss = F.smooth_l1_loss(x, x.detach() * 2, reduction=reduction).sum()
    assert python_of_torch(lambda: torch.autograd.grad(loss, x)) == []
