# SPDX-License-Identifier: Apache-2.0
"""Loads two epochs of batches whole, in parts and from streams of unequal length; prints them.

load.py MESH_SHAPE SPEC [differing]: Python tuples; the axes of the mesh are "a" and "b".
"""

import ast
import json
import sys

import spmdx
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RECORDS = TensorDataset(torch.arange(92.0).view(23, 4), torch.arange(23))
WAYS = ("whole", "parts", "streams")


def stream(part):
    """Batches of 4 rows, as many as the part has."""
    rows = torch.arange(5 + 4 * part) + 100 * part
    return [(rows[i : i + 4, None].float(), rows[i : i + 4]) for i in range(0, len(rows), 4)]


def loader(way, parts, part, seed=2):
    """What one process loads, of so many parts this one."""
    if way == "whole":
        order = torch.Generator().manual_seed(seed)
        return DataLoader(RECORDS, 5, shuffle=True, generator=order)
    if way == "parts":
        return DataLoader(RECORDS, 3, sampler=DistributedSampler(RECORDS, parts, part, seed=seed))
    return stream(part)


def epochs(own, mesh, spec, minibatch):
    """Rows, labels and a product of every batch, of two epochs."""
    sharding = spmdx.data.ShardingSpec(mesh, spec, minibatch)
    batches = spmdx.data.device_loader(own, input_sharding=sharding)
    weight = spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mesh, (None, mesh.axis_names[-1]))
    seen = []
    for _ in range(2):
        for x, y in batches:
            total = (x @ weight[: x.shape[1]]).sum()
            spmdx.mark_step()
            assert y.partition_spec == spec
            seen.append([x.cpu().tolist(), y.cpu().tolist(), total.item()])
    return seen


def main():
    shape, spec = map(ast.literal_eval, sys.argv[1:3])
    count = spmdx.runtime.global_runtime_device_count()
    mesh = spmdx.Mesh(range(count), shape, ("a", "b")[: len(shape)])
    parts, part = spmdx.data.batch_shard(mesh, spec)
    if "differing" in sys.argv:  # each process draws an order of its own, which must not pass
        own = loader("whole", parts, part, seed=spmdx.runtime.process_index())
        epochs(own, mesh, spec, minibatch=False)
    seen = {way: epochs(loader(way, parts, part), mesh, spec, way != "whole") for way in WAYS}
    print(json.dumps([parts, part, seen]))


if __name__ == "__main__":
    main()
