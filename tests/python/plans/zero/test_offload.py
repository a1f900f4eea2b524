# SPDX-License-Identifier: Apache-2.0
"""State of optimizers in the memory of hosts: numbers are those of one device."""

import pytest
import spmdx
import torch
from messages import eight_devices
from offload_programs import (
    ADAMW,
    OPTIMIZERS,
    assert_equal,
    cut_by_model,
    mlp_of,
    on_hosts,
    plain,
    trained,
    values_of,
)
from zero_programs import gpt, mesh_of, one_step

WAYS = [(1, False), (1, True), (3, False), (3, True)]


@pytest.fixture(autouse=True)
def devices():
    eight_devices()


@pytest.mark.parametrize("m, clip", WAYS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("n, width", [(2, 24), (3, 25), (4, 26), (8, 24), (8, 27)])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_numbers_are_those_of_one_device(stage, n, width, kind, m, clip):
    optimizer = OPTIMIZERS[kind]
    _, chosen, got = trained(mlp_of(width), optimizer, mesh_of(n), m, clip, stage=stage)
    assert_equal(got, plain(width, kind, m, clip))
    assert on_hosts(chosen) == [True] * 6


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_numbers_of_a_gpt_are_those_of_one_device(stage, n):
    program = gpt(2, 36, sequences=16, dtype=torch.float64)
    _, chosen, got = trained(program, ADAMW, mesh_of(n), 2, True, stage=stage)
    assert_equal(got, trained(program, ADAMW, m=2, clip=True)[2])
    assert all(on_hosts(chosen))


def test_small_parameters_stay_on_devices():
    model, chosen, got = trained(mlp_of(24), ADAMW, mesh_of(4), stage=2, min_size=25)
    assert_equal(got, plain(24, "AdamW, all at once", 1, False))
    assert on_hosts(chosen) == [p.dim() == 2 for p in model.parameters()]
    assert spmdx.explain().memory.host_bytes == 3 * 2 * 24 * 24 * 8 // 4


# ---- beside other axes ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [24, 26])
@pytest.mark.parametrize("shape", [(2, 4), (4, 2)])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_with_tensor_parallelism(stage, shape, width):
    mesh = spmdx.Mesh(range(8), shape, ("model", "data"))
    program = mlp_of(width)
    model, chosen, got = trained(program, ADAMW, mesh, 3, True, cut_by_model, stage=stage)
    assert_equal(got, plain(width, "AdamW, all at once", 3, True))
    lies = spmdx.get_sharding(chosen.state[model[0].weight]["exp_avg"])
    assert lies.on_host and lies.spec == ("model", "data")


# ---- other programs ------------------------------------------------------------------------------


def test_gradients_that_add_up_over_steps():
    """A backward pass is a step of its own, and reads no state."""

    def run(device):
        model, batch = mlp_of(24)()
        model = model.to(device)
        optimizer = ADAMW(model.parameters())
        if device == "spmdx":
            spmdx.nn.zero(model, optimizer, mesh_of(4), stage=2, offload=True)
        torch.manual_seed(3)
        for i in range(6):
            rows = batch().to(device)
            if device == "spmdx":
                spmdx.mark_sharding(rows, mesh_of(4), ("data", None))
            (model(rows) / 2).backward()
            if i % 2:
                optimizer.step()
                optimizer.zero_grad()
            if device == "spmdx":
                spmdx.mark_step()
        return values_of(model, optimizer)

    assert_equal(run("spmdx"), run("cpu"))


@pytest.mark.parametrize("amsgrad", [False, True])
def test_groups_and_a_schedule_of_rates(amsgrad):
    def run(device):
        model, batch = mlp_of(24)()
        model = model.to(device)
        groups = [
            {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-2, amsgrad=amsgrad)
        if device == "spmdx":
            spmdx.nn.zero(model, optimizer, mesh_of(8), offload=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
        torch.manual_seed(3)
        for _ in range(3):
            one_step(model, optimizer, batch, None if device == "cpu" else mesh_of(8))
            schedule.step()
        return values_of(model, optimizer)

    assert_equal(run("spmdx"), run("cpu"))


def test_a_parameter_that_two_modules_share():
    def program():
        model, batch = mlp_of(24)()
        model[4].weight = model[0].weight
        return model, batch

    _, chosen, got = trained(program, ADAMW, mesh_of(4), stage=3)
    assert_equal(got, trained(program, ADAMW)[2])
    assert on_hosts(chosen) == [True] * 5


def test_two_optimizers_of_one_model():
    """One of them keeps its state on devices."""

    def run(device):
        model, batch = mlp_of(24)()
        model = model.to(device)
        held = list(model.parameters())
        both = [ADAMW(held[:4]), ADAMW(held[4:])]
        if device == "spmdx":
            for optimizer, offload in zip(both, (True, False), strict=True):
                spmdx.nn.zero(model, optimizer, mesh_of(4), offload=offload)
        torch.manual_seed(3)
        for _ in range(3):
            rows = batch().to(device)
            if device == "spmdx":
                spmdx.mark_sharding(rows, mesh_of(4), ("data", None))
            model(rows).backward()
            for optimizer in both:
                optimizer.step()
                optimizer.zero_grad()
            if device == "spmdx":
                spmdx.mark_step()
        if device == "spmdx":
            assert on_hosts(both[0]) == [True] * 4 and on_hosts(both[1]) == [False] * 2
        return [value for optimizer in both for value in values_of(model, optimizer)]

    assert_equal(run("spmdx"), run("cpu"))
