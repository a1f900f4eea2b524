# SPDX-License-Identifier: Apache-2.0
"""A pipelined model learns what it learns on one device: losses, gradients, parameters, masks."""

import pytest
import spmdx
import torch
from pipeline_equality import check_equal
from pipeline_models import CASES

SCHEDULES = ("gpipe", "1f1b", "zb-h1")


def pipelined(p, cuts, schedule="1f1b", chunks=1):
    def prepare(model, mesh):
        spmdx.nn.pipeline(model, mesh, cuts=cuts, schedule=schedule, chunks=chunks)

    return prepare


def check(name, loop, p, m, schedule="1f1b", mesh=None, **settings):
    mesh = mesh or spmdx.Mesh(range(p), (p,), ("pipe",))
    prepare = pipelined(p, CASES[name].cuts[p], schedule)
    return check_equal(name, loop, mesh, p, m, schedule=schedule, prepare=prepare, **settings)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", CASES)
def test_models(name, schedule):
    check(name, "accumulated", 2, 4, schedule)


@pytest.mark.parametrize("p", [3, 4])
@pytest.mark.parametrize("name", CASES)
def test_more_stages(name, p):
    check(name, "accumulated", p, 7)


@pytest.mark.parametrize("loop", ["clipped", "scheduled", "momentum", "evaluated"])
@pytest.mark.parametrize("m", [1, 2, 7])
def test_loops(loop, m):
    check("gpt without dropout", loop, 2, m)


@pytest.mark.parametrize("m", [1, 4])
def test_autocast_and_a_scaler_of_losses(
    m,
):  # in f32; terms of the tied weight are added in another order
    check("gpt without dropout", "scaled", 2, m, against="spmdx", relative=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_beside_data_parallel(name):
    mesh = spmdx.Mesh(range(8), (2, 4), ("pipe", "data"))
    check(name, "clipped", 2, 4, mesh=mesh, data_axis="data")


def test_schedules_give_the_same_bits():
    traces = [check("llama", "clipped", 4, 7, schedule) for schedule in SCHEDULES]
    for other in traces[1:]:
        for name, parameter in traces[0].parameters.items():
            assert torch.equal(parameter, other.parameters[name]), name
