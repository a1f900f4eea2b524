# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in DCP's files: on other meshes, by plain DCP, in the background, of optimizers."""

import contextlib
import copy
import tempfile
import unittest.mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.experimental.distributed_checkpoint as xc
from common import grid, line, refused, same


@contextlib.contextmanager
def _folder():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
    finally:
        dist.destroy_process_group()


def _model(mesh, spec, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(7, 13), torch.nn.Linear(13, 3)).to("xla")
    xs.mark_sharding(model[0].weight, mesh, spec)
    return model


def what_was_saved_on_one_mesh_loads_on_another(devices):
    with _folder() as folder:
        saved = _model(line(devices), (0, None))
        want = {name: t.cpu() for name, t in saved.state_dict().items()}
        dcp.save({"model": saved.state_dict()}, checkpoint_id=folder, planner=xc.SPMDSavePlanner())
        other = _model(grid(devices), (1, 0), seed=1)
        said = xs.wrap_if_sharded(other[0].weight).sharding_spec
        dcp.load({"model": other.state_dict()}, checkpoint_id=folder, planner=xc.SPMDLoadPlanner())
        for name, t in other.state_dict().items():
            assert torch.equal(t.cpu(), want[name]), name
        assert xs.wrap_if_sharded(other[0].weight).sharding_spec == said
        plain = {"model": {name: torch.zeros_like(t) for name, t in want.items()}}
        dcp.load(plain, checkpoint_id=folder)
        assert all(torch.equal(t, want[name]) for name, t in plain["model"].items())


def what_plain_pytorch_saved_loads(devices):
    with _folder() as folder:
        plain = torch.nn.Sequential(torch.nn.Linear(7, 13), torch.nn.Linear(13, 3))
        dcp.save(plain.state_dict(), checkpoint_id=folder)
        other = _model(line(devices), (None, 0), seed=1)
        dcp.load(other.state_dict(), checkpoint_id=folder, planner=xc.SPMDLoadPlanner())
        for mine, theirs in zip(other.parameters(), plain.parameters(), strict=True):
            same(mine, theirs)
        short = {"0.weight": torch.zeros(13, 8).to("xla")}
        xs.mark_sharding(short["0.weight"], line(devices), (0, None))
        with refused(dcp.api.CheckpointException, "shape"):
            dcp.load(short, checkpoint_id=folder, planner=xc.SPMDLoadPlanner())


def training_goes_on_where_it_was_saved(devices):
    def step(model, optimizer, seed):
        torch.manual_seed(seed)
        model(torch.randn(8, 7).to("xla")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()

    for kind in (torch.optim.SGD, torch.optim.AdamW):
        with _folder() as folder:
            manager = xc.CheckpointManager(folder, 2, chkpt_on_preemption=False)
            model = _model(line(devices), (0, None))
            optimizer = kind(model.parameters(), lr=0.1)
            for number in (1, 2):
                step(model, optimizer, number)
                state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
                assert manager.save_async(number, state) == (number == 2)
            step(model, optimizer, 3)
            manager.join()
            again = _model(grid(devices), (None, 1), seed=1)
            optimizer = xc.prime_optimizer(kind(again.parameters(), lr=0.1))
            state = {"model": again.state_dict(), "optim": optimizer.state_dict()}
            manager.restore(2, state)
            again.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optim"])
            step(again, optimizer, 3)
            for mine, theirs in zip(again.parameters(), model.parameters(), strict=True):
                same(mine, theirs.cpu())


def a_primed_optimizer_leaves_its_parameters(devices):
    model = _model(line(devices), (0, None))
    before = copy.deepcopy([p.detach().cpu() for p in model.parameters()])
    optimizer = xc.prime_optimizer(torch.optim.AdamW(model.parameters(), lr=0.5))
    assert len(optimizer.state_dict()["state"]) == 4
    for parameter, want in zip(model.parameters(), before, strict=True):
        same(parameter, want)
        assert parameter.grad is None


def the_newest_are_kept(devices):
    with _folder() as folder:
        manager = xc.CheckpointManager(folder, 1, max_to_keep=2, chkpt_on_preemption=False)
        for number in range(4):
            assert manager.save(number, {"a": torch.full((3,), float(number))})
        assert manager.all_steps() == [2, 3]
        again = xc.CheckpointManager(folder, 1, chkpt_on_preemption=False)
        assert again.all_steps() == [2, 3]
        state = {"a": torch.zeros(3)}
        again.restore(3, state)
        same(state["a"], torch.full((3,), 3.0))
        with refused(AssertionError, "untracked step 0"):
            again.restore(0, state)


def a_save_in_the_background_that_fails_is_told(devices):
    with _folder() as folder:
        manager = xc.CheckpointManager(folder, 1, chkpt_on_preemption=False)
        with unittest.mock.patch.object(manager, "_save", side_effect=OSError("the disk is full")):
            manager.save_async(1, {"a": torch.ones(2)})
        with refused(OSError, "the disk is full"):
            manager.join()
        assert manager.all_steps() == []


def who_is_to_end_saves_at_any_step(devices):
    with _folder() as folder:
        manager = xc.CheckpointManager(folder, 100)
        try:
            assert not manager.save(1, {"a": torch.ones(2)})
            with unittest.mock.patch.object(torch_xla._XLAC, "_sync_point_reached", lambda s: True):
                assert manager.save(2, {"a": torch.ones(2)}) and manager.reached_preemption(2)
            assert manager.all_steps() == [2]
        finally:
            torch_xla._XLAC._deactivate_preemption_sync_manager()
    with refused(AssertionError, "process group"):
        xc.CheckpointManager("nowhere", 1)
