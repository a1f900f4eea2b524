# SPDX-License-Identifier: Apache-2.0
"""Between stages goes what hand-written pipelines send: one activation, and its one gradient."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from messages import eight_devices
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS, PARTS = 16, 24, 4


@pytest.fixture(autouse=True)
def devices():
    eight_devices()


class RootMeanSquare(nn.Module):
    """Of a few ops, which are in float32 and larger than what they read (arXiv:1910.07467)."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * scaled.to(x.dtype)


class Block(nn.Module):
    """Sums in front of which stages may end, with ops behind them that have no parameters."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


NORMS = {"of ops": RootMeanSquare, "RMSNorm": lambda: nn.RMSNorm(WIDTH)}
NORMS["LayerNorm"] = lambda: nn.LayerNorm(WIDTH)


AGAIN = [None, False, True]  # what is computed again; else whether as PyTorch used to do it


class Net(nn.Module):
    def __init__(self, norm, stages, again):
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList(Block(norm) for _ in range(stages))
        self.norm = norm()

    def forward(self, x):
        if self.again:  # it computes gradients of nothing else
            x = x.detach().requires_grad_()
        for block in self.blocks:
            x = block(x) if self.again is None else checkpoint(block, x, use_reentrant=self.again)
        return self.norm(x)


def net(norm, stages, again=None, dtype=torch.float64):
    torch.manual_seed(0)
    return Net(NORMS[norm], stages, again).to(dtype)


def batches(device, dtype, rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(rows, WIDTH, generator=generator) for _ in range(PARTS)]
    return [x.to(device, dtype) for x in made]


def gradients(model, parts):
    model.zero_grad(set_to_none=True)
    for x in parts:
        model(x).square().mean().backward()
    return [p.grad for p in model.parameters()]


def mesh_of(shape):
    names = ("pipe", "data")[: len(shape)]
    return spmdx.Mesh(range(torch.Size(shape).numel()), shape, names)


def cut(model, mesh, stages, schedule):
    return spmdx.nn.pipeline(
        model, mesh, "pipe", [f"blocks.{i}" for i in range(1, stages)], schedule
    )


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("stages, schedule", [(2, "1f1b"), (3, "zb-h1"), (4, "1f1b"), (8, "gpipe")])
def test_one_activation_goes_on_and_one_gradient_comes_back(stages, schedule, dtype, norm, again):
    model = cut(net(norm, stages, again, dtype).to("spmdx"), mesh_of((stages,)), stages, schedule)
    gradients(model, batches("spmdx", dtype))
    spmdx.mark_step()
    size = PARTS * ROWS * WIDTH * dtype.itemsize
    sent = {}
    for send in spmdx.explain().pipeline.sends:
        pair = send.sender, send.receiver
        sent[pair] = sent.get(pair, 0) + send.bytes
    pairs = [(s, s + 1) for s in range(stages - 1)]
    assert sent == dict.fromkeys([*pairs, *((b, a) for a, b in pairs)], size)


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("rows", [ROWS, ROWS + 1])
@pytest.mark.parametrize("shape", [(2,), (3,), (4,), (8,), (2, 2), (2, 3), (2, 4)])
def test_gradients_are_those_of_one_device(shape, rows, norm, again):
    stages = shape[0]
    expected = gradients(net(norm, stages, again), batches("cpu", torch.float64, rows))
    mesh = mesh_of(shape)
    model = cut(net(norm, stages, again).to("spmdx"), mesh, stages, "1f1b")
    parts = batches("spmdx", torch.float64, rows)
    if len(shape) > 1:
        parts = [spmdx.mark_sharding(x, mesh, ("data", None)) for x in parts]
    for got, wanted in zip(gradients(model, parts), expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-9, atol=1e-9)


def test_forward_passes_alone_send_one_activation():
    stages = 4
    model = cut(net("of ops", stages, dtype=torch.bfloat16).to("spmdx"), mesh_of((4,)), 4, "1f1b")
    with torch.no_grad():
        kept = [model(x) for x in batches("spmdx", torch.bfloat16)]
        spmdx.mark_step()
    sent = [send.bytes for send in spmdx.explain().pipeline.sends]
    assert sent == [PARTS * ROWS * WIDTH * 2] * (stages - 1)
    assert all(tensor.isfinite().all() for tensor in kept)


POOLS = {
    "mean": lambda h: h.mean(1),
    "largest": lambda h: h.amax(1),
    "first and mean": lambda h: h[:, 0] + h.mean(1),
    "of images": lambda h: F.adaptive_avg_pool2d(h.transpose(1, 2)[..., None], 1).flatten(1),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS.keys())
def test_what_is_pooled_in_front_of_a_cut_sends_as_little_back(pool):
    """As a network of images does in front of its classifier."""

    def run(device, mesh=None):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 5)).double()
        model = model.to(device)
        if mesh is not None:
            spmdx.nn.pipeline(model, mesh, "pipe", ["2"])
        parts = [x.view(4, 6, WIDTH) for x in batches(device, torch.float64)]
        for x in parts:
            model[2](pool(model[:2](x))).square().mean().backward()
        return [p.grad.cpu() for p in model.parameters()]

    torch.testing.assert_close(run("spmdx", mesh_of((2,))), run("cpu"), rtol=1e-9, atol=1e-12)
    sent = {(s.sender, s.receiver): 0 for s in spmdx.explain().pipeline.sends}
    for each in spmdx.explain().pipeline.sends:
        sent[each.sender, each.receiver] += each.bytes
    assert sent == {(0, 1): PARTS * 4 * WIDTH * 8, (1, 0): PARTS * 4 * WIDTH * 8}


@pytest.mark.parametrize("parts", [4, 32, 48])
def test_what_all_microbatches_read_is_sent_once(parts):
    """A scale that the first stage makes, for the norm behind each cut."""
    model = net("of ops", 2, dtype=torch.bfloat16).to("spmdx")
    cut(model, mesh_of((2,)), 2, "1f1b")
    first, last = model.blocks
    shown = torch.randn(ROWS, WIDTH).to("spmdx", torch.bfloat16)
    scale = first(shown).detach().float().sigmoid()
    for _ in range(parts):
        h = first(torch.randn(ROWS, WIDTH).to("spmdx", torch.bfloat16))
        wide = h.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * scale
        (h + last.down(last.up(scaled.bfloat16()))).square().mean().backward()
        del h, wide, scaled  # what lives on is kept where it was made
    spmdx.mark_step()
    sent = sum(each.bytes for each in spmdx.explain().pipeline.sends)
    one = ROWS * WIDTH * 2
    assert sent <= 2 * parts * one + 2 * one


def test_products_stay_on_their_stages():
    """Though nothing would be sent if the last stage did all of it."""
    model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(4)))
    model = spmdx.nn.pipeline(model.to("spmdx"), mesh_of((4,)), "pipe", ["1", "2", "3"], "1f1b")
    losses = [model(torch.ones(256, 256, device="spmdx")).square().sum() for _ in range(PARTS)]
    for loss in losses:
        loss.backward()
    spmdx.mark_step()
    times = [stage.forward_ns for stage in spmdx.explain().pipeline.stages]
    assert max(times) < 1.5 * min(times)
