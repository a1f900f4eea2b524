# SPDX-License-Identifier: Apache-2.0
"""A module, its optimizer and all that may happen to them, on the CPU or on a mesh."""

import copy
import random

import spmdx
import torch
from module_copies import Copies
from module_net import Net, numbers
from module_tensors import Tensors
from torch import nn


class World(Copies, Tensors):
    """A module, its optimizer and what else is alive, on one device; no ``mesh`` on the CPU."""

    def __init__(self, device, mesh):
        self.device, self.mesh = device, mesh
        self.net = Net()
        with torch.no_grad():
            for i, tensor in enumerate(self.net.parameters()):
                tensor.copy_(numbers(i, *tensor.shape) / 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9)
        self.kept = []  # graphs and tensors that stay alive beside the module
        self.refs = {}

    # ---- what the drafted number chooses

    def named(self):
        return dict(self.net.named_parameters(remove_duplicate=False))

    def one(self, n):
        named = self.named()
        return named[sorted(named)[n % len(named)]]

    def put(self, tensor):
        return tensor.to(self.device)

    def index(self, n):
        draw = torch.Generator().manual_seed(n)
        return self.put(torch.randint(6, (5 + n % 4,), generator=draw))

    def spec(self, n, rank):
        draw, axes = random.Random(n), list(self.mesh.axis_names)
        draw.shuffle(axes)
        entries = [None] * rank
        for axis in axes:
            if rank and draw.random() < 0.8:
                dim = draw.randrange(rank)
                entries[dim] = axis if entries[dim] is None else (*_tuple(entries[dim]), axis)
        return tuple(entries)

    def loss(self, n):
        out = self.net(self.index(n))
        return (out * self.put(numbers(n, *out.shape)).to(out.dtype)).square().mean()

    # ---- the beginning

    def begin(self, n):
        """To the device, with a graph and an optimizer from before, or without."""
        if n % 2:
            device, self.device = self.device, "cpu"
            self.keep_graph(n)
            self.device = device
        self.net.to(self.device)
        if n // 2:
            self.make_optimizer(n)

    # ---- marks; they mean nothing on the CPU

    def mark(self, n):
        if self.mesh:
            tensor = self.one(n)
            spmdx.mark_sharding(tensor, self.mesh, self.spec(n, tensor.dim()))

    def mark_buffer(self, n):
        if self.mesh:
            named = dict(self.net.named_buffers())
            tensor = named[sorted(named)[n % len(named)]]
            spmdx.mark_sharding(tensor, self.mesh, self.spec(n, tensor.dim()))

    def mark_all(self, n):
        if self.mesh:
            spmdx.fully_shard(self.net, self.mesh, axis=self.mesh.axis_names[0])

    def clear(self, n):
        if self.mesh:
            spmdx.clear_sharding(self.one(n))

    # ---- training

    def train_step(self, n):
        self.loss(n).backward()
        if n % 3 == 0:
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        self.optimizer.step()
        if n % 2:
            self.optimizer.zero_grad(set_to_none=n % 4 == 1)

    def backward(self, n):
        self.loss(n).backward()

    def step(self, n):
        self.optimizer.step()

    def zero_grad(self, n):
        (self.optimizer if n % 3 else self.net).zero_grad(set_to_none=n % 2 == 0)

    def make_optimizer(self, n):
        trained = list(self.net.parameters())
        if n % 3 == 0:
            self.optimizer = torch.optim.SGD(trained, 0.05, momentum=0.9)
        elif n % 3 == 1:
            self.optimizer = torch.optim.Adam(trained, 0.02, eps=0.1)
        else:
            self.optimizer = torch.optim.SGD(trained[:1], 0.05, momentum=0.5)
            self.optimizer.add_param_group({"params": trained[1:], "lr": 0.01})

    def reload_optimizer(self, n):
        self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))

    def freeze(self, n):
        self.one(n).requires_grad_(n % 2 == 0)

    def unfreeze_all(self, n):
        self.net.requires_grad_(True)

    def hook(self, n):
        parameter = self.one(n)
        if parameter.requires_grad:
            parameter.register_hook(lambda g: g * 0.5)

    # ---- conversions and moves

    def convert(self, n):
        dtype = [torch.float64, torch.float32][n // 5 % 2]
        if n % 5 == 0:
            self.net.to(dtype)
        elif n % 5 == 1:
            self.net.type(dtype)
        elif n % 5 == 2:
            self.net.double() if dtype is torch.float64 else self.net.float()
        elif n % 5 == 3:
            self.net.to(self.device, dtype)
        else:
            self.net.to(self.put(torch.ones(1, dtype=dtype)))

    def move_again(self, n):
        self.net.to(torch.device(self.device) if n % 2 else self.device)

    def share(self, n):
        self.net.share_memory()

    def there_and_back(self, n):
        graph = self.loss(n) if n % 2 else None
        self.refs = {}
        self.net.cpu()
        self.net.to(self.device)
        self.kept.append(graph)

    def empty(self, n):
        self.net.to_empty(device=self.device)
        self.fill(n)
        self.net.zero_grad()

    def fill(self, n):
        def fill(module):
            for i, tensor in enumerate([*module._parameters.values(), *module._buffers.values()]):
                if tensor is not None and tensor.is_floating_point():
                    tensor.detach().copy_(numbers(n + i, *tensor.shape).abs() / 2)
                elif tensor is not None:
                    tensor.fill_(3)

        self.net.apply(fill)

    def keep_graph(self, n):
        self.kept.append(self.loss(n))


def _tuple(entry):
    return entry if isinstance(entry, tuple) else (entry,)
