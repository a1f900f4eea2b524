# SPDX-License-Identifier: Apache-2.0
"""SPMDX_COMM=hccl: a backend of that name that a program registers carries messages with data.

It is Gloo under that name. Nobody has run HCCL.
"""

import pytest
from launch import run

REGISTERS = """
import spmdx, torch, torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup

made = []

def simple(store, rank, size, timeout):
    made.append(dist.ProcessGroupGloo(store, rank, size, timeout))
    return made[-1]

def silent(store, rank, size, timeout):
    made.append(FakeProcessGroup._create_internal(rank, size, FakeProcessGroup.Options()))
    return made[-1]

def extended(options, given):
    assert given is None and options.global_ranks_in_group == [0, 1]
    return simple(options.store, options.group_rank, options.group_size, options.timeout)

"""
STEPS = """
mesh = spmdx.get_1d_mesh("data")
x = spmdx.mark_sharding(torch.arange(8.0).to("spmdx"), mesh, ("data",))
assert x.sum().item() == 28 and len(made) == 1
assert [group.size() for group in made] == [2]
"""
LOSES = """
dist.Backend.register_backend("hccl", silent, devices=["cpu"])
x = spmdx.mark_sharding(torch.arange(8.0).to("spmdx"), spmdx.get_1d_mesh("data"), ("data",))
print(x.sum().item() == 28)
"""
WAYS = {
    "simple": 'dist.Backend.register_backend("hccl", simple, devices=["cpu"])',
    "extended": 'dist.Backend.register_backend("hccl", extended, True, devices=["npu", "cpu"])',
}


@pytest.mark.parametrize("way", WAYS)
def test_messages_go_through_the_backend_that_is_registered(way):
    out = run(REGISTERS + WAYS[way] + STEPS + "print(made[0].name())", 2, SPMDX_COMM="hccl")
    assert [text.strip() for text in out] == ["gloo", "gloo"]


def test_what_the_backend_does_not_carry_does_not_come():
    """So that messages have no other way: PyTorch's fake backend carries nothing."""
    assert [text.strip() for text in run(REGISTERS + LOSES, 2, SPMDX_COMM="hccl")] == ["False"] * 2


REFUSED = """
try:
    x = spmdx.mark_sharding(torch.ones(2).to("spmdx"), spmdx.get_1d_mesh("data"), ("data",))
    print(x.sum().item())
except spmdx.ShardingError as error:
    print(error)
"""
PLACES = {
    "no backend": (
        "",
        "no package has registered a backend of that name with torch.distributed. Expected one, "
        "imported before the first step; torch_npu, which has Huawei's, cannot be imported beside "
        "spmdx.",
    ),
    "chips": (
        'dist.Backend.register_backend("hccl", simple, devices=["npu"])',
        "the backend of that name carries what lies on 'npu'. Expected one for 'cpu': shards lie "
        "in the memory of the host.",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_carry_them_is_refused(place):
    registers, why = PLACES[place]
    out = run(REGISTERS + registers + REFUSED, 2, SPMDX_COMM="hccl")
    said = f"SPMDX_COMM is 'hccl', and {why} Write SPMDX_COMM=gloo."
    assert all(text.strip().endswith(said) for text in out), out
