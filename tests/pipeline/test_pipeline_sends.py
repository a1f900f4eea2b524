# SPDX-License-Identifier: Apache-2.0
"""Stages send activations and their gradients, and no weights, also in loops of other kinds."""

import copy

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS, PARTS = 8, 64, 4  # an activation is larger than a weight


class Block(nn.Module):
    """With numbers and a mask that lie on no stage, which its backward pass needs, too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask, skip):
        return x + self.second(torch.tanh(self.first(x * 1.5)) * mask + skip)


class Net(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        mask, skip = (x.detach() > 0).to(x.dtype), x
        for block in self.blocks:
            if self.again:
                x = checkpoint(block, x, mask, skip, use_reentrant=self.again == "reentrant")
            else:
                x = block(x, mask, skip)
        return x


def parts(device, step):
    generator = torch.Generator().manual_seed(step)
    for _ in range(PARTS):
        x = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)
        yield x.to(device).requires_grad_()


def backward(net, device, step):
    for x in parts(device, step):
        F.mse_loss(net(x), x.detach().cos()).backward()


def plain_step(net, optimizer, device, step):
    backward(net, device, step)
    optimizer.step()
    optimizer.zero_grad()


def two_steps(net, optimizer, device, step):
    plain_step(net, optimizer, device, step)
    plain_step(net, optimizer, device, step + 10)


def evaluated(net, optimizer, device, step):
    plain_step(net, optimizer, device, step)
    with torch.no_grad():
        return [net(x).square().mean() for x in parts(device, step)]


def sharpness_aware(net, optimizer, device, step):
    """arXiv:2010.01412: the gradient where the weights are worst nearby."""
    backward(net, device, step)
    with torch.no_grad():
        moved = [(p, p.grad * 0.05) for p in net.parameters()]
        for p, by in moved:
            p.add_(by)
    optimizer.zero_grad()
    backward(net, device, step)
    with torch.no_grad():
        for p, by in moved:
            p.sub_(by)
    optimizer.step()
    optimizer.zero_grad()


LOOPS = {f.__name__: f for f in (plain_step, two_steps, evaluated, sharpness_aware)}


def train(net, device, loop):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    kept = []
    for step in range(3):
        kept = loop(net, optimizer, device, step) or []
        if device == "spmdx":
            spmdx.mark_step()
    report = spmdx.explain() if device == "spmdx" else None
    return [tensor.detach().cpu() for tensor in (*kept, *net.parameters())], report


def check(net, loop, p):
    mesh = spmdx.Mesh(range(p), (p,), ("pipe",))
    model = copy.deepcopy(net).to("spmdx")
    spmdx.nn.pipeline(model, mesh, cuts=[f"blocks.{i}" for i in range(1, p)])
    got, report = train(model, "spmdx", loop)
    wanted, _ = train(net, "cpu", loop)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    return report


def sent(report):
    """The shapes of what is sent between stages."""
    moves = [c for c in report.collectives if c.kind == "send_recv"]
    return {c.cause.split(" ")[0] + c.cause.split(" ")[1] for c in moves}, report.pipeline


@pytest.mark.parametrize("again", [None, "anew", "reentrant"])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("p", [2, 4])
def test_weights_and_their_gradients_stay(p, loop, again):
    torch.manual_seed(0)
    shapes, pipeline = sent(check(Net(again).double(), LOOPS[loop], p))
    rows = {shape for shape in shapes if f"[{ROWS}," in shape}
    assert rows and shapes == rows, shapes
    assert all(stage.forward_ns > 0 and stage.backward_ns > 0 for stage in pipeline.stages)


def test_what_an_optimizer_keeps_goes_along_with_its_parameter():
    torch.manual_seed(0)
    net = Net(None).double()
    model = copy.deepcopy(net).to("spmdx")
    mesh = spmdx.Mesh(range(2), (2,), ("pipe",))
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (net, model)]
    for step, first in enumerate((2, 2, 1, 1, 3, 3, 3)):
        spmdx.nn.pipeline(model, mesh, cuts=[f"blocks.{first}"])
        plain_step(net, optimizers[0], "cpu", step)
        plain_step(model, optimizers[1], "spmdx", step)
        spmdx.mark_step()
        for one, other in zip(model.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=1e-9, atol=1e-9)
    shapes, _ = sent(spmdx.explain())
    assert all(f"[{ROWS}," in shape for shape in shapes), shapes
    for p in model.parameters():
        state = optimizers[1].state[p]
        assert spmdx.get_sharding(state["exp_avg"]).stage == spmdx.get_sharding(p).stage


MESHES = [
    ((2,), ("pipe",)),
    ((2, 2), ("data", "pipe")),
    ((4,), ("pipe",)),
    ((2, 2), ("pipe", "data")),
]


def test_a_model_goes_from_mesh_to_mesh_whatever_the_position_of_their_stages():
    torch.manual_seed(0)
    net = Net(None).double()
    model = copy.deepcopy(net).to("spmdx")
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (net, model)]
    for step, (shape, axes) in enumerate([*MESHES, *MESHES[::-1]]):
        mesh = spmdx.Mesh(range(torch.Size(shape).numel()), shape, axes)
        p = shape[axes.index("pipe")]
        spmdx.nn.pipeline(model, mesh, cuts=[f"blocks.{i}" for i in range(1, p)])
        for _ in range(2):
            plain_step(net, optimizers[0], "cpu", step)
            plain_step(model, optimizers[1], "spmdx", step)
            spmdx.mark_step()
        for one, other in zip(model.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=1e-9, atol=1e-9)
        assert {spmdx.get_sharding(p).mesh for p in model.parameters()} == {mesh}
