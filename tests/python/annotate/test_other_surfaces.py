# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own ways to say the same: DeviceMesh, `with mesh:`, the options of fully_shard."""

import pytest
import spmdx
import torch
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.tensor import Replicate, Shard

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


class DeviceMeshLike:
    """What spmdx reads of a DeviceMesh, which needs a process for each device."""

    def __init__(self, shape, names):
        self.mesh = torch.arange(torch.Size(shape).numel()).reshape(shape)
        self.mesh_dim_names = names


def specs(module):
    return {n: spmdx.get_sharding(p).spec for n, p in module.named_parameters() if _marked(p)}


def _marked(parameter):
    return spmdx.get_annotation(parameter) is not None


@pytest.mark.parametrize("shape", [(2,), (3,), (4, 2), (8,)])
def test_a_device_mesh_is_taken_wherever_a_mesh_is(shape):
    names = ("data", "model")[: len(shape)]
    theirs = DeviceMeshLike(shape, names)
    ours = spmdx.Mesh(range(torch.Size(shape).numel()), shape, names)
    x = torch.arange(35.0).reshape(7, 5)
    cut = spmdx.mark_sharding(x.to("spmdx"), theirs, ("data", None))
    assert cut.mesh == ours and torch.equal(cut.cpu(), x)
    layer = spmdx.fully_shard(torch.nn.Linear(4, 6).to("spmdx"), theirs, axis="data")
    assert spmdx.get_sharding(layer.weight).mesh == ours
    rows = x[:6].repeat(4, 1)
    doubled = spmdx.shard_map(lambda part: part * 2, theirs, (("data", None),), ("data", None))
    assert torch.equal(doubled(rows.to("spmdx")).cpu(), rows * 2)
    spmdx.set_global_mesh(theirs)
    try:
        assert spmdx.get_global_mesh() == ours
    finally:
        spmdx.set_global_mesh(None)


def test_a_mesh_counts_within_its_block_and_what_counted_before_counts_after():
    outer, inner = spmdx.get_1d_mesh("outer"), spmdx.Mesh(range(2), (2,), ("inner",))
    x = torch.ones(4).to("spmdx")
    with outer as entered:
        assert entered is outer and spmdx.get_global_mesh() == outer
        with inner:
            assert spmdx.mark_sharding(x, None, ("inner",)).mesh == inner
            with inner:  # again
                assert spmdx.get_global_mesh() == inner
            with pytest.raises(KeyError), outer:
                raise KeyError
            assert spmdx.get_global_mesh() == inner
        assert spmdx.get_global_mesh() == outer
    assert spmdx.get_global_mesh() is None


def test_parameters_lie_where_a_function_places_them_and_ignored_ones_are_left_alone():
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)).to("spmdx")
    mesh = spmdx.get_1d_mesh("fsdp")
    place = {(16, 8): Shard(1), (8, 16): Shard(-2)}
    spmdx.fully_shard(
        net,
        mesh,
        shard_placement_fn=lambda p: place.get(tuple(p.shape)),
        ignored_params={net[1].bias},
    )
    assert specs(net) == {
        "0.weight": (None, "fsdp"),
        "0.bias": ("fsdp",),
        "1.weight": ("fsdp", None),
    }


def network():
    layers = torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3)
    return torch.nn.Sequential(*layers).double()


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_training_with_these_options_equals_one_device(devices):
    torch.manual_seed(0)
    here, there = network(), network()
    there.load_state_dict(here.state_dict())
    mesh = spmdx.Mesh(range(devices), (devices,), ("fsdp",))
    spmdx.fully_shard(
        there.to("spmdx"),
        mesh,
        shard_placement_fn=lambda p: Shard(p.dim() - 1),
        ignored_params=[there[2].bias],
        reshard_after_forward=True,
        mp_policy=MixedPrecisionPolicy(),
        offload_policy=OffloadPolicy(),
    )
    x = torch.randn(7, 6, dtype=torch.float64)
    cut = spmdx.mark_sharding(x.to("spmdx"), mesh, ("fsdp", None))
    for model, rows in ((here, x), (there, cut)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            model(rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for mine, theirs in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reshard_after_forward": 4}, "set_gather_budget"),
        ({"mp_policy": torch.bfloat16}, "mp_policy is torch.bfloat16"),
        (
            {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.int8)},
            "the param_dtype of mp_policy is torch.int8",
        ),
        (
            {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)},
            "the reduce_dtype of mp_policy is torch.float32",
        ),
        ({"mp_policy": MixedPrecisionPolicy(None, torch.float64)}, "Leave reduce_dtype out"),
        ({"offload_policy": CPUOffloadPolicy()}, "offload_policy is"),
        ({"auto_wrap_policy": {torch.nn.Linear}}, "Expected a policy"),
        (
            {"auto_wrap_policy": CustomPolicy(lambda m: {"axis": "x"})},
            "gives a module the options",
        ),
        ({"extra_data_axis": "data"}, "Pass extra_data_axis='fsdp'"),
        ({"reshard": True}, "'reshard' is no option"),
        ({"shard_placement_fn": lambda p: Shard(2)}, "Mend shard_placement_fn"),
        ({"shard_placement_fn": lambda p: Replicate()}, "Mend shard_placement_fn"),
        ({"shard_placement_fn": 0}, "Expected a function of a parameter"),
        ({"ignored_params": ["weight"]}, "ignored_params holds 'weight'"),
        ({"ignored_params": 3}, "ignored_params holds 3"),
    ],
)
def test_what_is_said_otherwise_here_is_refused_and_marks_nothing(options, said):
    net = torch.nn.Sequential(torch.nn.Linear(8, 16)).to("spmdx")
    with pytest.raises(spmdx.ShardingError, match=said):
        spmdx.fully_shard(net, spmdx.get_1d_mesh("fsdp"), **options)
    assert specs(net) == {} and not net._forward_pre_hooks
