# SPDX-License-Identifier: Apache-2.0
"""A program of torch_xla as two processes of two devices: batches, steps and checkpoints."""

import os
import subprocess
import sys

PROGRAM = """
import copy, sys
import torch, torch.distributed as dist, torch_xla
import torch_xla.core.xla_model as xm, torch_xla.runtime as xr
import torch_xla.distributed.parallel_loader as pl, torch_xla.distributed.spmd as xs
import torch_xla.experimental.distributed_checkpoint as xc
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
    SpmdFullyShardedDataParallel as FSDPv2,
)

xr.use_spmd()
here, count = xr.process_index(), xr.process_count()
assert (count, xr.global_runtime_device_count(), xr.addressable_runtime_device_count()) == (2, 4, 2)
mesh = xs.Mesh(range(4), (4, 1), ("fsdp", "model"))
torch.manual_seed(0)
plain = torch.nn.Linear(6, 16)
model = FSDPv2(copy.deepcopy(plain), mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.optim.SGD(plain.parameters(), lr=0.1)
batches = [torch.randn(8, 6) for _ in range(2)]
spec = xs.ShardingSpec(mesh, ("fsdp", None), minibatch=True)
own = [batch.chunk(count)[here] for batch in batches]
for x in pl.MpDeviceLoader(own, torch_xla.device(), input_sharding=spec):
    assert x.shape == (8, 6)
    model(x).square().mean().backward()
    xm.optimizer_step(optimizer)
    optimizer.zero_grad()
for x in batches:
    plain(x).square().mean().backward()
    other.step()
    other.zero_grad()
torch.testing.assert_close(model.module.weight.detach().cpu(), plain.weight.detach())
shards = xs.wrap_if_sharded(model.module.weight).local_shards
for shard, want in zip(shards, plain.weight.chunk(4)[2 * here :], strict=False):
    torch.testing.assert_close(shard.data, want.detach())
dist.init_process_group("gloo", init_method="xla://")
manager = xc.CheckpointManager(sys.argv[1], 1, chkpt_on_preemption=False)
assert manager.save_async(1, model.state_dict())
manager.join()
torch.manual_seed(1)
again = FSDPv2(torch.nn.Linear(6, 16), mesh=mesh)
manager.restore(1, again.state_dict())
torch.testing.assert_close(again.module.weight.detach().cpu(), plain.weight.detach())
print("the same", flush=True)
"""


def test_two_processes_train_and_save_as_one(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    unset = {name: text for name, text in os.environ.items() if not name.startswith("SPMDX_")}
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = ["-m", "spmdx.torch_xla", tmp_path / "train.py", tmp_path / "checkpoints"]
    done = subprocess.run(
        [sys.executable, *run, *map(str, program)],
        env={**unset, "CPU_NUM_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.count("the same") == 2, done.stdout + done.stderr
