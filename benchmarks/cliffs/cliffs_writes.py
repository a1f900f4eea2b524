# SPDX-License-Identifier: Apache-2.0
"""Parts of large buffers are written, and preallocated outputs filled."""

import torch
from cliff_row import EVERYWHERE, Goal, Rows

ROWS = Rows()
PART = Goal(plus=1e-4, judged=EVERYWHERE)
FILLED = Goal(judged=EVERYWHERE)
WIDTH = 256


def writes(buffer, row, rows, two):
    """{name: a write of one row or two}"""
    wide = two[:, None].expand(2, WIDTH)
    return {
        "buf[i] = x": lambda: buffer.__setitem__(7, row),
        "buf[a:b] = x": lambda: buffer.__setitem__(slice(7, 9), rows),
        "buf[i].add_": lambda: buffer[7].add_(row),
        "index_copy_": lambda: buffer.index_copy_(0, two, rows),
        "index_put_": lambda: buffer.__setitem__(two, rows),
        "index_add_": lambda: buffer.index_add_(0, two, rows),
        "scatter_": lambda: buffer.scatter_(0, wide, rows),
        **rarer(buffer, rows, two, wide),
    }


def rarer(buffer, rows, two, wide):
    """{name: a write of a diagonal, or one that reads what it replaces, or another part}"""
    ones = rows[:, 0] * 0 + 1
    return {
        "buf[a:b] = buf[c:d]": lambda: buffer.__setitem__(slice(7, 9), buffer[40:42]),
        "index_fill_": lambda: buffer.index_fill_(0, two, 0.5),
        "index_reduce_": lambda: buffer.index_reduce_(0, two, rows, "amax"),
        "scatter_reduce_": lambda: buffer.scatter_reduce_(0, wide, rows, "amax"),
        "buf[i, j] += 1": lambda: buffer.index_put_((two, two), ones, accumulate=True),
        "diagonal().mul_": lambda: buffer.diagonal().mul_(0.5),
        "fill_diagonal_": lambda: buffer.fill_diagonal_(0.5),
    }


NAMES = tuple(writes(*[torch.zeros(2, WIDTH)] * 3, torch.zeros(2, dtype=torch.long)))
LARGE = NAMES[:7]  # of 256 MB, too


def write(at, name, megabytes):
    buffer = at.put(torch.zeros(megabytes * 1024, WIDTH), "x")
    row, rows = at.whole(WIDTH), at.whole(2, WIDTH)
    call = writes(buffer, row, rows, at.put(torch.tensor([4, 5])))[name]

    def step():
        call()
        return buffer[3:10] if megabytes < 256 else None

    return step


for megabytes in (16, 256):
    for name in LARGE if megabytes > 16 else NAMES:
        ROWS.add(
            f"{name}, {megabytes} MB",
            f"a part of f32[{megabytes * 1024}, {WIDTH}], its first dim cut",
            lambda at, name=name, size=megabytes: write(at, name, size),
            goal=PART,
            quick=megabytes < 256,
        )


def filled(at, times, side, train):
    x = at.rows(side, side, grad=train)

    def run():
        out, y = torch.empty(times, side, side, device=at.device), x
        for t in range(times):
            y = torch.tanh(y)
            out[t] = y
        return out

    return (lambda: torch.autograd.grad(run().sum(), x)) if train else run


ROWS.add(
    "out[t] = x, 1600 times",
    "1,600 tanh of f32[32, 32]",
    lambda at: filled(at, 1600, 32, False),
    goal=FILLED,
    quick=False,
)
ROWS.add(
    "out[t] = x, 200 times, gradient",
    "200 tanh of f32[32, 32], backward",
    lambda at: filled(at, 200, 32, True),
    goal=FILLED,
)


@ROWS.add("static KV cache, written by a tensor of positions", "index_copy_ into f32[8, 1024, 64]")
def static_cache(at):
    keys, new = at.put(torch.zeros(8, 1024, 64), "x"), at.rows(8, 1, 64)
    position, query = at.put(torch.tensor([3])), at.rows(8, 1, 64)

    def step():
        keys.index_copy_(1, position, new)
        position.add_(1).remainder_(1024)
        return torch.softmax(query @ keys.transpose(1, 2), -1) @ keys

    return step
