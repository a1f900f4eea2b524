# SPDX-License-Identifier: Apache-2.0
"""A module with ties, buffers and an optimizer, on the CPU or annotated on the device."""

import spmdx
import torch
from torch import nn
from ways_oracle import facts, outcome

SPECS = {"up.weight": ("a", None), "tied.weight": ("a", None), "up.bias": ("a",), "scale": ("a",)}


class Net(nn.Module):
    """Two linears that are tied, a norm, and two buffers, of which one is not saved."""

    def __init__(self, rows=8):
        super().__init__()
        self.up = nn.Linear(6, rows)
        self.tied = nn.Linear(6, rows, bias=False)
        self.tied.weight = self.up.weight
        self.norm = nn.LayerNorm(rows)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, rows))
        self.register_buffer("shift", torch.ones(rows), persistent=False)

    def forward(self, x):
        return self.norm(self.up(x).sin() + self.tied(x)) * self.scale + self.shift


class Subject:
    """A module, on a mesh where there are devices, its optimizer after a step, and rows for it."""

    def __init__(self, device, devices=None, rows=8):
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.net = Net(rows).to(device)
        for name, tensor in tensors(self.net).items():
            if devices and name in SPECS:
                spmdx.mark_sharding(tensor, line(devices), SPECS[name])
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
        self.x = torch.linspace(-2, 2, 30).view(5, 6).to(device)
        self.train()

    def train(self):
        """One step of the optimizer; the gradients stay."""
        self.optimizer.zero_grad()
        weight = next(self.net.parameters())
        self.net(self.x.to(weight.device, weight.dtype)).square().mean().backward()
        self.optimizer.step()

    def other(self, factor=0.5):
        """A state dict of other numbers."""
        return {name: t.detach() * factor for name, t in self.net.state_dict().items()}


def line(devices):
    return spmdx.Mesh(range(devices), (devices,), ("a",))


def tensors(net):
    return {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers())}


def told(s):
    """Its tensors, their gradients and ties, and what the optimizer holds of them."""
    named, held = tensors(s.net), [p for g in s.optimizer.param_groups for p in g["params"]]
    places = [id(p) for p in held]
    order = [id(t) for t in named.values()]
    here = s.device.type
    return [
        facts({n: [t, t.grad if t.is_leaf else None] for n, t in named.items()}, here),
        [order.index(i) for i in order],
        [places.index(i) if i in places else None for i in order],
        facts([s.optimizer.state.get(p) for p in held], here, device=False),
    ]


def lived(s, way, device=True):
    """What a way gives, what is left, and what a step of training makes of that."""
    here = s.device.type
    return [outcome(lambda: way(s), here, device), told(s), outcome(s.train, here), told(s)]


def lost(s):
    """The names of tensors that are not annotated as they were."""
    said = {name: spmdx.get_annotation(t) for name, t in tensors(s.net).items()}
    return {n for n, spec in SPECS.items() if said.get(n) is None or said[n].spec != spec}
