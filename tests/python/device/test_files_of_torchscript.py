# SPDX-License-Identifier: Apache-2.0
"""TorchScript's files: PyTorch's C++ reader writes sizes into tensors itself."""

import copy
import io
import math

import pytest
import spmdx
import torch
from torch import nn


class Strided(nn.Module):
    def __init__(self):
        super().__init__()
        self.turned = nn.Parameter(torch.arange(12.0).view(3, 4).t())
        self.square = nn.Parameter(torch.arange(9.0).view(3, 3).t())
        self.register_buffer("part", torch.arange(20)[3:15:4])
        self.register_buffer("number", torch.tensor(2.0))

    def forward(self, x):
        return (x @ self.turned @ self.square + self.part) * self.number


def loaded(module, make, map_location=None):
    file = io.BytesIO()
    torch.jit.save(make(module), file)
    file.seek(0)
    return torch.jit.load(file, map_location=map_location)


MAKES = {
    "script": torch.jit.script,
    "trace": lambda m: torch.jit.trace(m, next(m.buffers()).new_ones(2, 4).float()),
}


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_a_module_of_the_device_comes_back(make, devices):
    spmdx.runtime.set_device_count(8)
    module, x = Strided(), torch.randn(5, 4)
    want = loaded(module, make)(x)
    there = loaded(module.to("spmdx"), make)
    ours = x.to("spmdx")
    if devices > 1:
        spmdx.mark_sharding(ours, spmdx.Mesh(range(devices), (devices,), ("a",)), ("a", None))
    torch.testing.assert_close(there(ours).cpu(), want)
    for name, tensor in module.state_dict().items():
        assert torch.equal(there.state_dict()[name].cpu(), tensor.cpu()), name
    there.turned.data.add_(1)
    assert there.turned.tolist() == (module.turned.detach().cpu() + 1).tolist()


def test_a_file_of_the_device_goes_to_the_cpu():
    module = Strided()
    want = module(torch.ones(2, 4))
    assert torch.equal(loaded(module.to("spmdx"), torch.jit.script, "cpu")(torch.ones(2, 4)), want)


WAYS = {
    "to": lambda m: m.to("spmdx"),
    "to a device": lambda m: m.to(torch.device("spmdx")),
    "spmdx": lambda m: m.spmdx(),
    "_apply": lambda m: m._apply(lambda t: t.to("spmdx")),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_modules_of_torchscript_move_to_the_device_and_back(make, way):
    plain, x = make(Strided()), torch.arange(8.0).view(2, 4)
    module = way(make(Strided()))
    tensors = [*module.parameters(), *module.buffers()]
    assert {t.device.type for t in tensors} == {"spmdx"} and len(tensors) == 4
    torch.testing.assert_close(module(x.to("spmdx")).cpu(), plain(x))
    module.cpu()
    assert {t.device.type for t in (*module.parameters(), *module.buffers())} == {"cpu"}
    torch.testing.assert_close(module(x), plain(x))


CONVOLUTIONS = {
    "conv1d": (nn.Conv1d(3, 4, 3), (4, 3, 8)),
    "conv2d": (nn.Conv2d(3, 4, 3, groups=1, bias=False), (4, 3, 8, 8)),
    "conv3d": (nn.Conv3d(3, 4, 2), (4, 3, 4, 4, 4)),
    "transposed": (nn.ConvTranspose1d(3, 4, 3), (4, 3, 8)),
    "layers": (nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU()).eval(), (4, 3, 8)),
}


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_traced(name, devices):
    spmdx.debug.reset_counters()
    module, shape = CONVOLUTIONS[name]
    module, x = copy.deepcopy(module), torch.sin(torch.arange(float(math.prod(shape)))).view(shape)
    want = module(x)
    want.sum().backward()
    gradients = [p.grad for p in module.parameters()]
    module.zero_grad()
    x = x.to("spmdx")
    if devices > 1:
        mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
        spmdx.mark_sharding(x, mesh, ("x", *[None] * (len(shape) - 1)))
    traced = torch.jit.trace(module.to("spmdx"), x)
    for _ in range(3):
        traced.zero_grad()
        found = traced(x)
        found.sum().backward()
        torch.testing.assert_close(found.cpu(), want, rtol=1e-4, atol=1e-5)
        for p, gradient in zip(traced.parameters(), gradients, strict=True):
            torch.testing.assert_close(p.grad.cpu(), gradient, rtol=1e-4, atol=1e-4)
    assert not spmdx.debug.fallbacks()
