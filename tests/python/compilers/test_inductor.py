# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own compiler, through libraries that run without Python."""

import shutil
import warnings

import pytest
import spmdx
import torch
from spmdx.auto import Strategy
from torch.nn import functional

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(10), torch.nn.Linear(10, 24)
        self.down = torch.nn.Linear(24, 3)

    def forward(self, x):
        return self.down(functional.gelu(self.up(self.norm(x)))).log_softmax(-1)


def training(strategy, steps=6, between=None):
    """Losses and parameters; the learning rate falls."""
    torch.manual_seed(0)
    model, x, y = Net(), torch.randn(10, 10), torch.arange(10) % 3
    if strategy:
        model, mesh = model.to("spmdx"), strategy.mesh()
        strategy.mark(model, None, mesh)
        x, y = strategy.mark_batch(x, mesh), strategy.mark_batch(y, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    losses = []
    for step in range(steps):
        loss = functional.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.detach())
        if strategy:
            spmdx.mark_step()
            if between and step == 1:
                between()
    return torch.stack([loss.cpu() for loss in losses]), [p.cpu() for p in model.parameters()]


def require_equal(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_libraries_compute_what_pytorch_does_while_a_program_runs_and_in_the_next():
    expected = training(None)
    found, again = [], []
    spmdx.set_compiler("inductor")
    require_equal(
        training(Strategy(data=2), between=lambda: found.append(spmdx.compilers.wait())), expected
    )
    segments = spmdx.explain().segments
    assert found[0] > 0 and {s.state for s in segments.segments} == {"compiled"}
    assert segments.compiled_ops > 0.8 and segments.compiled_flops > 0.9
    slowest = max(s.compile_ns for s in segments.segments)
    spmdx.set_compiler(None)
    spmdx.set_compiler("inductor", compile_now=True)
    require_equal(training(Strategy(data=2)), expected)
    again = spmdx.explain().segments
    assert {s.state for s in again.segments} == {"compiled"}
    assert max(s.compile_ns for s in again.segments) < slowest / 4  # they are read from disk


def test_shards_that_lie_otherwise_than_the_library_thinks_are_read_rightly():
    """A transposed operand: libraries read memory as it was when they were compiled."""
    spmdx.set_compiler("inductor", compile_now=True)
    x = torch.randn(6, 8)
    for _ in range(2):
        on_device = x.to("spmdx")
        turned = on_device.t()
        spmdx.mark_step()
        y = (turned * 2).exp() + turned.cos()
        spmdx.mark_step()
        torch.testing.assert_close(y.cpu(), (x.t() * 2).exp() + x.t().cos())
    assert {s.state for s in spmdx.explain().segments.segments} == {"compiled"}


@pytest.mark.parametrize("causal", [False, True])
def test_attention_reads_interleaved_projections_rightly(causal):
    """Of one head each: PyTorch's kernel takes elements of a row for neighbours."""
    x = torch.randn(2, 16, 24)

    def attended(x):
        query, key, value = x.view(2, 16, 8, 3).unbind(3)
        heads = (part.view(2, 16, 1, 8).transpose(1, 2) for part in (query, key, value))
        found = functional.scaled_dot_product_attention(*heads, is_causal=causal)
        return (found.transpose(1, 2).reshape(2, 16, 8) * 2).tanh()

    expected_x = x.clone().requires_grad_()
    expected = attended(expected_x)
    expected.square().sum().backward()
    spmdx.set_compiler("inductor", compile_now=True)
    on_device = x.to("spmdx").requires_grad_()
    found = attended(on_device)
    found.square().sum().backward()
    torch.testing.assert_close(found.detach().cpu(), expected.detach())
    torch.testing.assert_close(on_device.grad.cpu(), expected_x.grad)
    assert {s.state for s in spmdx.explain().segments.segments} == {"compiled"}


def test_results_that_are_views_are_written_to_and_read_apart():
    """Of an input, of one another, and of what is computed."""

    def parts(x):
        y = x * 2 + 1
        return [x.t(), x[1:], *(y * 3).chunk(2), y, y.view(-1)]

    x = torch.randn(4, 6)
    expected = [part.clone() for part in parts(x)]
    spmdx.set_compiler("inductor", compile_now=True)
    on_device = x.to("spmdx")
    for _ in range(2):
        found = parts(on_device)
        spmdx.mark_step()
        for part, other in zip(found, expected, strict=True):
            torch.testing.assert_close(part.cpu(), other)
    found[0].add_(1)  # a view of x, as all programs have it
    torch.testing.assert_close(on_device.cpu(), x + 1)
    torch.testing.assert_close(found[1].cpu(), x[1:] + 1)
    torch.testing.assert_close(found[2].cpu(), expected[2])
    assert {s.state for s in spmdx.explain().segments.segments} <= {"compiled"}


def sums(a, b):
    return torch.bmm(a, b) * 2 + 1


def test_products_of_integers_are_left():
    a = torch.arange(6, dtype=torch.int32).view(2, 1, 3)
    spmdx.set_compiler("inductor", compile_now=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_device = a.to("spmdx")
        assert torch.equal(sums(on_device, on_device.mT).cpu(), sums(a, a.mT))
    assert [op for op, _ in spmdx.compilers.left()] == ["aten.bmm"]


def test_what_has_fewer_digits_than_its_dtype_is_left():
    x = torch.randn(20, dtype=torch.float64)
    spmdx.set_compiler("inductor", compile_now=True)
    gradients = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (x.clone(), x.to("spmdx")):
            given.requires_grad_()
            (functional.hardsigmoid(given).square() * 3).sum().backward()
            gradients.append(given.grad.cpu())
    torch.testing.assert_close(*gradients, rtol=1e-15, atol=1e-15)
    assert [op for op, _ in spmdx.compilers.left()] == ["aten.hardsigmoid_backward"]


TABLE = torch.arange(12.0).reshape(4, 3) / 12
FAILING = {
    "embedding": (
        lambda i: functional.embedding(i, TABLE.to(i.device) * 2).exp().amax(0),
        IndexError,
    ),
    "index": (lambda i: (TABLE.to(i.device) * 2)[i].exp().amax(0), IndexError),
    "gather": (lambda i: (TABLE.to(i.device) * 2).gather(0, i[:, None]).exp() + 1, RuntimeError),
    "divided": (lambda i: (i + i) // (i - 7) * 2, RuntimeError),
}


@pytest.mark.parametrize("name", FAILING)
def test_errors_of_the_program_are_raised_and_end_no_process(name):
    program, kind = FAILING[name]
    rows = 2000  # so many that threads share them
    spmdx.set_compiler("inductor", compile_now=True)
    good = torch.arange(rows) % 3
    torch.testing.assert_close(program(good.to("spmdx")).cpu(), program(good))
    bad = good.clone()
    bad[-1] = 7
    with pytest.raises(kind, match=r"test_inductor\.py:\d+"):
        program(bad.to("spmdx")).cpu()
    torch.testing.assert_close(program(good.to("spmdx")).cpu(), program(good))
