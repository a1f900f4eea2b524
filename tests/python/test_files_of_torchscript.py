# SPDX-License-Identifier: Apache-2.0
"""TorchScript's files: PyTorch's C++ reader writes sizes into tensors itself."""

import io

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
