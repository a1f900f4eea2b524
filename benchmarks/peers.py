# SPDX-License-Identifier: Apache-2.0
"""One process of DDP, FSDP2 or DTensor tensor parallelism over Gloo, counting what it sends.

    RANK=0 WORLD_SIZE=2 python benchmarks/peers.py FILE '[["ddp", {…sizes…}, batch, false], …]'

Started by bytes.py. Rank 0 prints one JSON line: for every case {kind: [collectives, bytes]}, the
bytes one rank receives in a step, by the same formulas as in spmdx's reports.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from nanogpt import GPT, Config, token_mean, train_step
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

STEPS = 5  # the last is counted: DDP sorts its buckets after the first


def size(tensors):
    """Bytes of a tensor or of a list of them."""
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(size(t) for t in tensors)


# Of an op of torch.distributed: its kind, and the bytes of the whole buffer the formula speaks of.
COLLECTIVES = {
    "c10d::allreduce_": ("all_reduce", lambda args, out: size(args[0])),
    "c10d::_allgather_base_": ("all_gather", lambda args, out: size(args[0])),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", lambda args, out: size(args[1])),
    "c10d::broadcast_": ("broadcast", lambda args, out: size(args[0])),
    "_c10d_functional::all_reduce": ("all_reduce", lambda args, out: size(args[0])),
    "_c10d_functional::all_reduce_": ("all_reduce", lambda args, out: size(args[0])),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", lambda args, out: size(out)),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", lambda args, out: size(args[0])),
    "_c10d_functional::all_to_all_single": ("all_to_all", lambda args, out: size(args[0])),
}
# Ops of the same namespaces that send nothing.
SILENT = (
    "_c10d_functional::wait_tensor",
    "_c10d_functional::_wrap_tensor_autograd",
    "c10d::barrier",
)


def received(kind, whole, group):
    """Bytes one rank receives."""
    if kind == "broadcast":
        return whole
    return (2 if kind == "all_reduce" else 1) * whole * (group - 1) // group


class Counter(TorchDispatchMode):
    """Counts the collectives below DTensor, DDP and FSDP2."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(t, dist.tensor.DTensor) for t in types):
            return NotImplemented  # DTensor first: its collectives come by here afterwards
        out = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            self.count(func._schema.name, args, out)
        return out

    def count(self, name, args, out):
        if name in SILENT:
            return
        kind, whole = COLLECTIVES[name]  # an op that is not in the table ends the run
        row = self.found.setdefault(kind, [0, 0])
        row[0] += 1
        row[1] += received(kind, whole(args, out), dist.get_world_size())


# --- the peers ------------------------------------------------------------------------------------


def data_parallel(model, mesh):
    return torch.nn.parallel.DistributedDataParallel(model)


def fully_sharded(reshard):
    def wrap(model, mesh):
        for block in model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
        return fully_shard(model, mesh=mesh, reshard_after_forward=False)  # its default

    return wrap


def tensor_parallel(model, mesh):
    """The MLP; the heads, too, where q, k and v are matrices of their own."""
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if len(model.blocks[0].attention.qkv) == 3:
        plan |= {"attention.qkv.*": ColwiseParallel(), "attention.out": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


PEERS = {
    "ddp": data_parallel,
    "fsdp": fully_sharded(True),
    "fsdp, no reshard": fully_sharded(False),
    "tp": tensor_parallel,
}


def valid_mean(logits, y):
    """The mean over the valid tokens of all processes; DDP divides by their number afterwards."""
    valid = (y != -1).sum().float()
    dist.all_reduce(valid)
    loss = F.cross_entropy(logits, y, ignore_index=-1, reduction="sum")
    return loss * dist.get_world_size() / valid


def run_case(mode, sizes, batch, ignoring):
    """What one rank sends in the last of a few steps; `batch` rows a process."""
    torch.manual_seed(0)
    config = Config(**sizes)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    model = PEERS[mode](GPT(config), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    loss = valid_mean if ignoring else token_mean
    torch.manual_seed(1 if mode == "tp" else dist.get_rank())
    for _ in range(STEPS - 1):
        x, y = torch.randint(config.vocab, (2, batch, config.context)).unbind(0)
        train_step(model, optimizer, x, y, loss)
    with Counter() as counter:
        train_step(model, optimizer, x, y, loss)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, counter.found)
    assert all(found == counter.found for found in everyone), everyone
    return counter.found


def main():
    store, cases = sys.argv[1:]
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    found = [run_case(*case) for case in json.loads(cases)]
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # a thread of PyTorch's that is still there would abort the process at its end


if __name__ == "__main__":
    main()
