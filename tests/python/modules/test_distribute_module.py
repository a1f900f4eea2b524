# SPDX-License-Identifier: Apache-2.0
"""distribute_module: the functions of a DTensor program lay out a module."""

import pytest
import spmdx
import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


def network():
    torch.manual_seed(0)
    layers = nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Linear(10, 3)
    return nn.Sequential(*layers).double()


def partition(name, module, mesh):
    """As DTensor's programs write it: new parameters, made of the old ones."""
    if isinstance(module, nn.Linear):
        for key, parameter in list(module.named_parameters(recurse=False)):
            dim = 0 if name == "0" else parameter.dim() - 1
            made = spmdx.distribute_tensor(parameter.detach(), mesh, [Shard(dim)])
            module.register_parameter(key, nn.Parameter(made))


def inputs(module, arguments, mesh):
    return tuple(spmdx.distribute_tensor(x, mesh, [Shard(0)]) for x in arguments)


def outputs(module, output, mesh):
    return output.redistribute(mesh, [Replicate()]) if hasattr(output, "mesh") else output * 1


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_training_equals_one_device(devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    here, there = network(), network()
    assert spmdx.distribute_module(there, mesh, partition, inputs, outputs) is there
    assert {n: tuple(p.partition_spec) for n, p in there.named_parameters()} == {
        "0.weight": ("x", None),
        "0.bias": ("x",),
        "1.weight": (None,),
        "1.bias": (None,),
        "3.weight": (None, "x"),
        "3.bias": ("x",),
    }
    assert all(b.sharding.is_fully_replicated for b in there.buffers())
    x, results = torch.randn(7, 6, dtype=torch.float64), []
    for net in (here, there):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        for _ in range(3):
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append([v.detach().cpu() for v in (loss, *net.parameters(), *net.buffers())])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_without_functions_all_is_replicated():
    net = spmdx.distribute_module(network(), spmdx.get_1d_mesh("x"))
    assert all(p.sharding.is_fully_replicated for p in net.parameters())
    with spmdx.get_1d_mesh("y"):
        assert spmdx.distribute_module(network())[0].weight.mesh.axis_names == ("y",)


class Their:
    """What says that it is a DTensor."""

    placements = device_mesh = ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partition_fn": 3}, "partition_fn is 3. Expected a function of three arguments"),
        ({"input_fn": lambda inputs, mesh: inputs}, "Write def input_fn.module, inputs, mesh"),
        ({"output_fn": lambda o: o}, "Write def output_fn.module, outputs, mesh"),
        (
            {"partition_fn": lambda n, m, mesh: m._buffers.update(b=Their())},
            "partition_fn has made b a DTensor",
        ),
    ],
)
def test_functions_of_another_form_are_refused(options, said):
    with pytest.raises(spmdx.ShardingError, match=said):
        spmdx.distribute_module(network(), spmdx.get_1d_mesh("x"), **options)
