# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own FSDP2 on CPU processes: trains what a file holds, and writes what came out.

Run as `fsdp2_by_gloo.py rank processes folder`; the folder holds `task.pt`.
"""

import os
import sys

import torch
import torch.distributed as dist
from fsdp2_models import MODELS, trained
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

rank, processes, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes
)
mesh = init_device_mesh("cpu", (processes,))
results = []
for name, policies, state, batch in torch.load(f"{folder}/task.pt", weights_only=True):
    model = MODELS[name]()
    model.load_state_dict(state)
    inner, outer = [None if p is None else MixedPrecisionPolicy(*p) for p in policies]
    if inner is not None:
        fully_shard(model[0], mesh=mesh, mp_policy=inner)
    fully_shard(model, mesh=mesh, mp_policy=outer)
    rows = batch.chunk(processes)[rank]
    losses = trained(model, rows)
    for loss in losses:
        dist.all_reduce(loss)
    whole = [p.full_tensor().detach() for p in model.parameters()]
    results.append([loss / processes for loss in losses] + whole)
if rank == 0:
    torch.save(results, f"{folder}/result.pt")
dist.barrier()
os._exit(0)  # FSDP2 leaves threads that now and then abort an exit which waits for nothing
