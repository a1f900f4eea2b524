# SPDX-License-Identifier: Apache-2.0
"""ZeRO: numbers of GPTs are those of one device, and of each other bit for bit where sums are."""

import functools

import pytest
import spmdx
import torch
from messages import eight_devices
from torch import nn
from zero_programs import OPTIMIZERS, gpt, mesh_of, mlp, one_step

WAYS = [(1, False), (2, False), (1, True), (2, True)]


@pytest.fixture(autouse=True)
def devices():
    eight_devices()


def trained(program, stage, n, optimizer, m=1, clip=False, steps=3):
    """Parameters, state and norms; stage 0 cuts the batch alone, None is the CPU."""
    model, batch = program()
    mesh = None if stage is None else mesh_of(n)
    if mesh is not None:
        model = model.to("spmdx")
    chosen = optimizer(model.parameters())
    if stage:
        spmdx.nn.zero(model, chosen, mesh, stage=stage)
    torch.manual_seed(3)
    norms = [one_step(model, chosen, batch, mesh, m, clip) for _ in range(steps)]
    state = [v for of in chosen.state.values() for v in of.values() if torch.is_tensor(v)]
    held = [*model.parameters(), *state, *(norm for norm in norms if norm is not None)]
    return [tensor.detach().cpu() for tensor in held]


def gpt_of(width):
    return gpt(2, width, sequences=16, dtype=torch.float64)


@functools.cache
def plain(width, kind, m, clip):
    return trained(gpt_of(width), None, 1, OPTIMIZERS[kind], m, clip)


@pytest.mark.parametrize("m, clip", WAYS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("n, width", [(2, 32), (4, 32), (8, 32), (8, 36)])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_numbers_of_a_gpt_are_those_of_one_device(stage, n, width, kind, m, clip):
    got = trained(gpt_of(width), stage, n, OPTIMIZERS[kind], m, clip)
    for one, other in zip(got, plain(width, kind, m, clip), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


# ---- bit for bit ---------------------------------------------------------------------------------


def equal(ones, others):
    return all(map(torch.equal, ones, others)) and len(ones) == len(others)


PROGRAMS = {
    "MLP": mlp(4, width=24, rows=48),
    "MLP of doubles": mlp(4, width=24, rows=48, dtype=torch.float64),
    "GPT": gpt(2, width=32, sequences=16),
    "GPT of doubles": gpt_of(32),
}


@pytest.mark.parametrize("kind", ["AdamW", "momentum"])
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_stages_1_and_2_are_data_parallel_bit_for_bit(program, n, kind):
    """One batch, no clipping: a reduce_scatter adds in the order in which an all_reduce does."""
    whole = trained(program, 0, n, OPTIMIZERS[kind])
    for stage in (1, 2):
        assert equal(trained(program, stage, n, OPTIMIZERS[kind]), whole)


class Exact(nn.Module):
    """Of whole numbers and fractions of a few bits, so that no sum of it is rounded."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.ParameterList(
            torch.randint(-1, 2, (8, 8), generator=generator).double() for _ in range(2)
        )

    def forward(self, rows):
        for weight in self.weights:
            rows = rows @ weight
        return rows.square().mean()


def exact():
    return Exact(), lambda: torch.randint(-2, 3, (16, 8)).double()


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=2.0**-4, momentum=0.5)


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_where_no_sum_is_rounded_all_stages_are_one_device_bit_for_bit(stage, n, m):
    wanted = trained(exact, None, 1, momentum, m, steps=2)
    assert equal(trained(exact, stage, n, momentum, m, steps=2), wanted)
    thirds = trained(exact, None, 1, lambda p: torch.optim.SGD(p, lr=1 / 3), m, steps=2)
    assert not equal(thirds, wanted)
