# SPDX-License-Identifier: Apache-2.0
"""Loads two epochs of batches whole, in parts or from streams of unequal length; prints them.

load.py HOW MESH_SHAPE SPEC: MESH_SHAPE and SPEC are Python tuples, the axes are "a" and "b".
"""

import ast
import json
import sys

import spmdx
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RECORDS = TensorDataset(torch.arange(92.0).view(23, 4), torch.arange(23))


def stream(part):
    """Batches of 4 rows, as many as the part has."""
    rows = torch.arange(5 + 4 * part) + 100 * part
    return [(rows[i : i + 4, None].float(), rows[i : i + 4]) for i in range(0, len(rows), 4)]


def loader(how, parts, part, seed=2):
    """What one process loads; `parts` and `part` say its share."""
    if how == "whole":
        order = torch.Generator().manual_seed(seed)
        return DataLoader(RECORDS, 5, shuffle=True, generator=order)
    if how == "parts":
        return DataLoader(RECORDS, 3, sampler=DistributedSampler(RECORDS, parts, part, seed=seed))
    return stream(part)


def main():
    how, shape, spec = sys.argv[1], *map(ast.literal_eval, sys.argv[2:4])
    count = spmdx.runtime.global_runtime_device_count()
    mesh = spmdx.Mesh(range(count), shape, ("a", "b")[: len(shape)])
    parts, part = spmdx.data.batch_shard(mesh, spec)
    # Of "differing" every process draws another order of whole batches, which must not pass.
    differing = how == "differing"
    own = loader("whole" if differing else how, parts, part, seed=spmdx.runtime.process_index())
    batches = spmdx.data.device_loader(
        own if differing else loader(how, parts, part),
        input_sharding=spmdx.data.ShardingSpec(mesh, spec, minibatch=how in ("parts", "streams")),
    )
    weight = spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mesh, (None, mesh.axis_names[-1]))
    seen = []
    for _ in range(2):
        for x, y in batches:
            shards = [(s.device, s.data.tolist()) for s in y.local_shards] if how != "whole" else []
            total = (x @ weight[: x.shape[1]]).sum()
            spmdx.mark_step()
            seen.append([x.cpu().tolist(), y.cpu().tolist(), total.item()])
            assert all(set(rows) <= set(seen[-1][1]) for _, rows in shards)
    print(json.dumps([parts, part, seen]))


if __name__ == "__main__":
    main()
