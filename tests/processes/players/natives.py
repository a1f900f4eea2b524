# SPDX-License-Identifier: Apache-2.0
"""Moves drawn at random: what every process reads, as bits, and how many were native.

natives.py COUNT SEED
"""

import hashlib
import random
import sys

import spmdx
import torch

COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
DEVICES = spmdx.runtime.global_runtime_device_count()
DTYPES = torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32
rows = [n for n in range(1, DEVICES + 1) if DEVICES % n == 0]


def mesh(draw: random.Random) -> spmdx.Mesh:
    ids = list(range(DEVICES))
    if draw.random() < 0.3:
        draw.shuffle(ids)
    first = draw.choice(rows)
    return spmdx.Mesh(ids, (first, DEVICES // first), ("x", "y"))


def spec(draw: random.Random) -> tuple:
    """Of a matrix; no axis twice."""
    parts: list = [None, None]
    for axis in draw.sample(("x", "y"), 2):
        if draw.random() < 0.7:
            dim = draw.randrange(2)
            parts[dim] = axis if parts[dim] is None else (parts[dim], axis)
    return tuple(parts)


def numbers(shape: tuple, dtype: torch.dtype, seed: int) -> torch.Tensor:
    drawn = torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed))
    if dtype.is_floating_point:
        return (drawn / 8).to(dtype)
    return drawn.to(dtype)


def moved(draw: random.Random, at: int) -> tuple[str, torch.Tensor, torch.Tensor]:
    """What was drawn, what it became, and what it should have become."""
    on, dtype = mesh(draw), draw.choice(DTYPES)
    size = (
        (lambda: DEVICES * draw.randrange(1, 9))
        if draw.random() < 0.7
        else lambda: draw.randrange(1, 40)
    )
    shape, target = (size(), size()), spec(draw)
    if draw.random() < 0.5:
        before = spec(draw)
        plain = numbers(shape, dtype, at)
        x = spmdx.mark_sharding(plain.to("spmdx"), on, before)
        name, found, wanted = f"{before}", x * 1, plain
    else:  # the sum over a dim that is cut
        axis, inner = draw.choice(("x", "y", ("x", "y"))), DEVICES * draw.randrange(1, 5)
        dtype = torch.float64 if dtype is torch.int32 else dtype
        left, right = numbers((shape[0], inner), dtype, at), numbers((inner, shape[1]), dtype, -at)
        a = spmdx.mark_sharding(left.to("spmdx"), on, (None, axis))
        b = spmdx.mark_sharding(right.to("spmdx"), on, (axis, None))
        name, found, wanted = f"sum over {axis}", a @ b, left @ right
    found = spmdx.mark_sharding(found, on, target)
    text = f"{at}: {dtype} {list(wanted.shape)} {name} -> {target} on {on.shape()}"
    return text, found, wanted


digest = hashlib.sha256()
for at in range(COUNT):
    text, found, wanted = moved(random.Random(SEED * 1000 + at), at)
    spmdx.sync()
    shards = [shard.data for shard in found.local_shards]
    got = found.cpu()
    close = 0.1 if got.dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(got, wanted, rtol=close, atol=close, msg=f"{text}: {{}}".format)
    for part in (*shards, got):
        digest.update(part.contiguous().view(torch.uint8).numpy().tobytes())
print(digest.hexdigest(), spmdx.debug.counters()["native_collectives"])
