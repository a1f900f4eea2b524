# SPDX-License-Identifier: Apache-2.0
"""State of optimizers in the memory of hosts, on the stages of a pipeline."""

import functools

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
)


@pytest.fixture(autouse=True)
def devices():
    eight_devices()


def two_stages(model, mesh, schedule):
    spmdx.nn.pipeline(model, mesh, cuts=["2"], schedule=schedule)


@pytest.mark.parametrize("kind", ["AdamW, one by one", "AdamW, all at once", "SGD, all at once"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("shape", [(2, 2), (2, 4)])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_on_the_stages_of_a_pipeline(stage, shape, schedule, kind):
    devices = shape[0] * shape[1]
    mesh = spmdx.Mesh(range(devices), shape, ("pipe", "data"))
    prepare = functools.partial(two_stages, schedule=schedule)
    optimizer = OPTIMIZERS[kind]
    model, chosen, got = trained(mlp_of(24), optimizer, mesh, 3, True, prepare, stage=stage)
    assert_equal(got, plain(24, kind, 3, True))
    assert all(on_hosts(chosen))
    for layer, at in (0, 0), (2, 1), (4, 1):
        for value in chosen.state[model[layer].weight].values():
            if torch.is_tensor(value) and value.dim():
                assert spmdx.get_sharding(value).stage == ("pipe", at)
    kept = 2 if "Adam" in kind else 1  # numbers of a parameter; the second stage has two layers
    assert spmdx.explain().memory.host_bytes == 2 * kept * (24 * 24 + 24) * 8 // shape[1]


def test_stages_and_tensor_parallelism():
    mesh = spmdx.Mesh(range(8), (2, 2, 2), ("pipe", "data", "model"))

    def prepare(model, mesh):
        cut_by_model(model, mesh)
        two_stages(model, mesh, "1f1b")

    _, chosen, got = trained(mlp_of(24), ADAMW, mesh, 3, True, prepare, stage=2)
    assert_equal(got, plain(24, "AdamW, all at once", 3, True))
    assert all(on_hosts(chosen))
