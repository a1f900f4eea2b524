# SPDX-License-Identifier: Apache-2.0
"""What frames keep for the whole process does not pass from one trainer to another."""

import os

import pytest
import spmdx
import torch
import transformers
from accelerate.state import AcceleratorState
from accelerate.utils import ProjectConfiguration
from spmdx.integrations.accelerate import Accelerator
from spmdx.integrations.transformers import Trainer
from trained import farthest, losses, trainer

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


@pytest.fixture(autouse=True)
def _no_state_is_left():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_plain_trainer_that_is_made_next_takes_no_device_away(tmp_path):
    ours, plain = (
        trainer(kind, tmp_path / kind.__module__, {"max_steps": 4})
        for kind in (Trainer, transformers.Trainer)
    )
    ours.train()
    assert ours.args.distributed_state.device.type == "spmdx"
    assert ours.accelerator.device.type == "spmdx"
    assert ours.model.lm_head.weight.device.type == "spmdx"
    plain.train()
    assert plain.model.lm_head.weight.device.type == "cpu"
    assert farthest(losses(ours), losses(plain)) < 1e-6


def test_fsdp_of_version_1_looks_for_no_gpu(tmp_path):
    config = {"version": 1, "activation_checkpointing": True}
    made = trainer(Trainer, tmp_path, {"fsdp": True, "fsdp_config": config, "max_steps": 1})
    assert made.accelerator.mesh.shape() == {"dp_shard": 8}
    config = {"version": 1, "cpu_ram_efficient_loading": True}
    with pytest.raises(spmdx.ShardingError, match="cpu_ram_efficient_loading"):
        trainer(Trainer, tmp_path, {"fsdp": True, "fsdp_config": config})
    assert "FSDP_CPU_RAM_EFFICIENT_LOADING" not in os.environ


def test_the_newest_state_has_the_numbers_that_the_device_draws_next(tmp_path):
    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)
    accelerator = Accelerator(project_config=project)
    accelerator.prepare(torch.nn.Linear(4, 4))
    accelerator.save_state()
    expected = torch.rand(4, device=accelerator.device).cpu()
    accelerator.load_state()
    assert torch.equal(torch.rand(4, device=accelerator.device).cpu(), expected)
