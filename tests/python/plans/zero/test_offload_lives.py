# SPDX-License-Identifier: Apache-2.0
"""State of optimizers in the memory of hosts: saved, loaded, read, moved, and called again."""

import copy
import io

import pytest
import spmdx
import torch
from messages import cases, eight_devices, message_of
from offload_programs import ADAMW, assert_equal, mlp_of, on_hosts, values_of
from zero_programs import mesh_of, one_step

NEAR, FAR = False, True


@pytest.fixture(autouse=True)
def devices():
    eight_devices()


def made(offload=None, n=4, stage=1):
    """A model and its optimizer; on the CPU where ``offload`` is None."""
    model, batch = mlp_of(24)()
    if offload is not None:
        model = model.to("spmdx")
    optimizer = ADAMW(model.parameters())
    if offload is not None:
        spmdx.nn.zero(model, optimizer, mesh_of(n), stage=stage, offload=offload)
    return model, optimizer, batch


def steps(model, optimizer, batch, n=4, seed=1, count=3):
    torch.manual_seed(seed)
    mesh = None if model[0].weight.device.type == "cpu" else mesh_of(n)
    for _ in range(count):
        one_step(model, optimizer, batch, mesh)


def wanted(seeds=(1, 2)):
    model, optimizer, batch = made()
    for seed in seeds:
        steps(model, optimizer, batch, seed=seed)
    return values_of(model, optimizer)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize(
    "way, n",
    [(lambda state: state, 4), (copy.deepcopy, 4), (through_a_file, 4), (through_a_file, 2)],
)
@pytest.mark.parametrize("before, after", [(FAR, NEAR), (NEAR, FAR), (FAR, FAR), (FAR, None)])
def test_a_state_dict_loads_into_either(before, after, way, n):
    model, optimizer, batch = made(before)
    steps(model, optimizer, batch)
    other, its, _ = made(after, n, stage=3)
    other.load_state_dict(way(model.state_dict()))
    its.load_state_dict(way(optimizer.state_dict()))
    steps(other, its, batch, n, seed=2)
    assert_equal(values_of(other, its), wanted())
    if after is not None:
        assert on_hosts(its) == [after] * 6


@pytest.mark.parametrize("before, after", [(FAR, NEAR), (NEAR, FAR), (FAR, FAR)])
def test_a_checkpoint_loads_into_either(before, after, tmp_path):
    model, optimizer, batch = made(before)
    steps(model, optimizer, batch)
    spmdx.checkpoint.save({"model": model, "optimizer": optimizer}, tmp_path / "saved")
    other, its, _ = made(after, n=8, stage=3)
    spmdx.checkpoint.load({"model": other, "optimizer": its}, tmp_path / "saved")
    assert on_hosts(its) == [after] * 6
    assert_equal(values_of(other, its), values_of(model, optimizer))
    steps(other, its, batch, n=8, seed=2)
    assert_equal(values_of(other, its), wanted())
    assert on_hosts(its) == [after] * 6


def held():
    spmdx.sync(wait=True)
    return torch.get_device_module("spmdx").memory_allocated()


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_later_call_brings_it_back(stage):
    model, optimizer, batch = made(FAR, stage=stage)
    steps(model, optimizer, batch, seed=1)
    far = held()
    spmdx.nn.zero(model, optimizer, mesh_of(4), stage=stage, offload=False)
    steps(model, optimizer, batch, seed=2)
    assert on_hosts(optimizer) == [False] * 6
    state = 2 * sum(p.numel() * 8 for p in model.parameters()) // 4
    assert held() - far == pytest.approx(state, abs=64)
    assert spmdx.explain().memory.host_bytes == 0
    spmdx.nn.zero(model, optimizer, mesh_of(4), stage=stage, offload=True)
    steps(model, optimizer, batch, seed=3)
    assert on_hosts(optimizer) == [True] * 6
    assert held() == pytest.approx(far, abs=64)
    assert spmdx.explain().memory.host_bytes == state
    assert_equal(values_of(model, optimizer), wanted((1, 2, 3)))


def test_state_that_is_read_between_steps():
    """By the program, on the CPU and on devices, within a step and behind it."""
    plain, its, batch = made()
    model, optimizer, _ = made(FAR)
    for seed in 1, 2:
        steps(plain, its, batch, seed=seed, count=1)
        steps(model, optimizer, batch, seed=seed, count=1)
        here = optimizer.state[model[0].weight]["exp_avg"]
        there = its.state[plain[0].weight]["exp_avg"]
        assert_equal([here.cpu(), (here * 2 + 1).cpu()], [there, there * 2 + 1])
        assert here.norm().item() == pytest.approx(there.norm().item(), rel=1e-9)
        assert repr(here).splitlines()[1] == repr(there).splitlines()[1]
        shards = [shard.data for shard in here.local_shards]
        assert_equal([torch.cat([shard.cpu() for shard in shards])], [there])
        assert on_hosts(optimizer) == [True] * 6


def test_state_that_the_program_writes():
    """What it was lies on hosts, and what it becomes does, too."""
    models = made(FAR), made()
    for model, optimizer, batch in models:
        steps(model, optimizer, batch, count=2)
        with torch.no_grad():
            for state in optimizer.state.values():
                state["exp_avg"].mul_(0.5)
                state["exp_avg_sq"].add_(state["exp_avg"].square())
                state["exp_avg"][0].zero_()
        spmdx.mark_step()
        steps(model, optimizer, batch, seed=2, count=2)
    assert_equal(*(values_of(*pair[:2]) for pair in models))
    assert on_hosts(models[0][1]) == [True] * 6


def test_parts_say_where_they_lie():
    model, optimizer, batch = made(FAR)
    steps(model, optimizer, batch)
    known = spmdx.get_sharding(optimizer.state[model[0].weight]["exp_avg"])
    assert known == spmdx.Sharding(mesh_of(4), ("data", None), on_host=True)
    assert spmdx.get_sharding(model[0].weight).on_host is False


def zero(offload):
    model, optimizer, _ = made(NEAR)
    return spmdx.nn.zero(model, optimizer, mesh_of(4), offload=offload)


def said(value):
    return (
        f"HERE: zero: offload is {value}. Expected True or False. Write True to keep the "
        "optimizer's state in the memory of hosts."
    )


BAD = [
    ("a number", lambda: zero(1), said("1")),
    ("a text", lambda: zero("cpu"), said("'cpu'")),
    ("nothing", lambda: zero(None), said("None")),
]


@pytest.mark.parametrize("call, text", cases(BAD))
def test_errors(call, text):
    assert message_of(spmdx.ShardingError, call) == text
