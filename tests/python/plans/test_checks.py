# SPDX-License-Identifier: Apache-2.0
"""Poison mode: right programs do not notice it; memory around and behind shards holds garbage."""

import os
import subprocess
import sys

import models
import pytest
import spmdx
import torch
from spmdx._start.settings import wanted_checks


@pytest.fixture
def poison():
    spmdx._C.set_checks(poison=True)
    yield
    spmdx._C.set_checks()


@pytest.mark.parametrize("name", models.CASES)
@pytest.mark.parametrize(
    "plan",
    [
        models.Plan((3,), ("data",)),
        models.Plan((4,), ("data",), fully_sharded=True),
        models.Plan((2, 2), ("data", "model")),
    ],
    ids=str,
)
def test_models_train_alike_with_poison(name, plan, poison):
    batches = models.data(name, [6, 5])  # devices do not divide them
    models.assert_same(models.run(name, batches, plan), models.run(name, batches, device="cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_every_shard_lies_between_bands_of_garbage(dtype, poison):
    mesh = spmdx.Mesh(range(3), (3,), ("x",))
    x = torch.ones(7, 5).to("spmdx")
    spmdx.mark_sharding(x, mesh, ("x", None))
    y = (x * 2.0).to(dtype)
    spmdx.sync(wait=True)
    garbage = 1 if dtype is torch.bool else 255
    for data in spmdx._C.local_data(y, on_host=False)[0]:
        memory = torch.empty(0, dtype=torch.uint8, device=data.device).set_(data.untyped_storage())
        start = data.storage_offset() * data.itemsize
        around = torch.cat([memory[:start], memory[start + data.nbytes :]])
        assert start >= 64 and len(around) >= 128 and (around == garbage).all()
        assert (data.cpu() == torch.tensor(2.0).to(dtype)).all()


def test_poison_is_off_unless_asked_for():
    assert not any(spmdx._C.checks().values())
    y = torch.ones(4).to("spmdx") * 2.0
    spmdx.sync(wait=True)
    assert spmdx._C.local_data(y)[0][0].untyped_storage().nbytes() == 16


def test_the_environment_turns_poison_on():
    code = "import spmdx; print(spmdx._C.checks()['poison'])"
    environment = {**os.environ, "SPMDX_CHECK": "poison"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n" and done.stderr == ""


def test_an_unknown_check_is_refused():
    with pytest.raises(ValueError) as error:
        wanted_checks({"SPMDX_CHECK": "poisson"})
    assert str(error.value) == (
        "SPMDX_CHECK is 'poisson', and 'poisson' is no check. Expected 'poison', 'memory', "
        "'replicas', several with commas between, or nothing. Unset SPMDX_CHECK, or write "
        "SPMDX_CHECK=poison."
    )
