# SPDX-License-Identifier: Apache-2.0
"""Random programs of views and in-place writes give on the device what they give on the CPU."""

import os
import random

import pytest
import spmdx
import torch

# Programs in all (`--count N`); a failing program's seed is printed, `ALIAS_SEED=n` runs it alone.
COUNT = int(os.environ.get("RANDOM_PROGRAMS", "2000"))
CHUNKS = 20


def _dim(rng, t):
    return rng.randrange(t.dim()) if t.dim() else None


def _slice(rng, t):
    d = _dim(rng, t)
    if d is None:
        return None
    start = rng.randint(0, t.size(d))
    stop = rng.randint(start, t.size(d))
    step = rng.randint(1, 2)
    return lambda x: x[(slice(None),) * d + (slice(start, stop, step),)]


def _select(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) == 0:
        return None
    index = rng.randrange(-t.size(d), t.size(d))
    return lambda x: x.select(d, index)


def _transpose(rng, t):
    if t.dim() < 2:
        return None
    a, b = rng.sample(range(t.dim()), 2)
    return lambda x: x.transpose(a, b)


def _permute(rng, t):
    order = rng.sample(range(t.dim()), t.dim())
    return lambda x: x.permute(order)


def _flatten(rng, t):
    return (lambda x: x.view(-1)) if t.is_contiguous() else None


def _split_dim(rng, t):
    if not t.is_contiguous():
        return None
    for d in range(t.dim()):
        if t.size(d) > 2 and t.size(d) % 2 == 0:
            sizes = [*t.shape[:d], 2, t.size(d) // 2, *t.shape[d + 1 :]]
            return lambda x: x.view(sizes)
    return None


def _unsqueeze(rng, t):
    d = rng.randint(0, t.dim())
    return (lambda x: x.unsqueeze(d)) if t.dim() < 5 else None


def _squeeze(rng, t):
    return lambda x: x.squeeze()


def _expand(rng, t):
    if t.dim() > 3:
        return None
    return lambda x: x.unsqueeze(0).expand(2, *x.shape)


def _diagonal(rng, t):
    return (lambda x: x.diagonal(0, 0, 1)) if t.dim() >= 2 else None


def _chunk(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) < 2:
        return None
    return lambda x: x.chunk(2, d)[1]


def _unbind(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) < 2:
        return None
    return lambda x: x.unbind(d)[-1]


def _unfold(rng, t):
    d = _dim(rng, t)
    if d is None or t.size(d) < 3 or t.dim() > 3:
        return None
    return lambda x: x.unfold(d, 2, 2)


def _as_strided(rng, t):
    if t.numel() < 4 or not t.is_contiguous():
        return None
    offset = t.storage_offset() + rng.randint(0, t.numel() - 4)
    strides = rng.choice([(2, 1), (1, 2)])
    return lambda x: x.as_strided((2, 2), strides, offset)


def _alias(rng, t):
    return rng.choice([lambda x: x.detach(), lambda x: x.data, lambda x: x.view_as(x)])


VIEWS = [_slice, _select, _transpose, _permute, _flatten, _split_dim, _unsqueeze, _squeeze]
VIEWS += [_expand, _diagonal, _chunk, _unbind, _unfold, _as_strided, _alias]

WRITES = [
    lambda x, c: x.add_(c),
    lambda x, c: x.mul_(c),
    lambda x, c: x.fill_(c),
    lambda x, c: x.zero_(),
    lambda x, c: x.neg_(),
    lambda x, c: x.copy_(torch.full_like(x, c)),
    lambda x, c: x.copy_(torch.arange(x.numel(), dtype=x.dtype).view(x.shape).to(x.device)),
    lambda x, c: x.clamp_(-abs(c), abs(c)),
    lambda x, c: x.masked_fill_(x > 0, c),
    lambda x, c: torch.add(x, c, out=x),
    lambda x, c: x.addcmul_(x, x, value=c),
    lambda x, c: x.sub_(x.mean()) if x.numel() else x,
]


def _overlaps(t):
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape, strict=True))


def run_program(seed):
    """Runs one program on both devices and returns its first difference, or None."""
    rng = random.Random(seed)
    shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(shape, generator=generator)
    cpu, dev = [base.clone()], [base.to("spmdx")]
    log = [f"base {shape}"]
    for _ in range(rng.randint(3, 12)):
        at = rng.randrange(len(cpu))
        kind = rng.random()
        if kind < 0.5:
            make = rng.choice(VIEWS)
            view = make(rng, cpu[at])
            if view is None:
                continue
            cpu.append(view(cpu[at]))
            dev.append(view(dev[at]))
            log.append(f"{len(cpu) - 1} = {make.__name__}({at})")
        elif kind < 0.9:
            which, c = rng.randrange(len(WRITES)), round(rng.uniform(-2, 2), 2)
            if _overlaps(cpu[at]):
                with pytest.raises(RuntimeError, match="single memory location"):
                    WRITES[2](dev[at], c)
                continue
            WRITES[which](cpu[at], c)
            WRITES[which](dev[at], c)
            log.append(f"write {which}({at}, {c})")
        elif kind < 0.95:
            spmdx.mark_step()
            log.append("mark_step")
        else:
            cpu.append(cpu[at].clone())
            dev.append(dev[at].clone())
            log.append(f"{len(cpu) - 1} = clone({at})")
        if (cpu[-1].shape, cpu[-1].stride()) != (dev[-1].shape, dev[-1].stride()):
            return f"{log}: layout {cpu[-1].shape} {cpu[-1].stride()} became {dev[-1].stride()}"
        if cpu[-1].storage_offset() != dev[-1].storage_offset():
            return f"{log}: offset {cpu[-1].storage_offset()} became {dev[-1].storage_offset()}"
    for i, (expected, got) in enumerate(zip(cpu, dev, strict=True)):
        if not torch.allclose(expected, got.cpu(), rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"{log}: value {i} is\n{got.cpu()}\nnot\n{expected}"
    return None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs_of_views_and_writes_equal_the_cpu(chunk):
    alone = os.environ.get("ALIAS_SEED")
    per_chunk = max(1, COUNT // CHUNKS)
    seeds = [int(alone)] if alone else range(chunk * per_chunk, (chunk + 1) * per_chunk)
    failed = {}
    for seed in seeds:
        try:
            difference = run_program(seed)
        except Exception as error:  # noqa: BLE001 - the report names the seed
            difference = f"{type(error).__name__}: {error}"
        if difference:
            failed[seed] = difference
    seed = next(iter(failed), None)
    assert not failed, f"seeds {sorted(failed)} differ; seed {seed}: {failed[seed]}"
