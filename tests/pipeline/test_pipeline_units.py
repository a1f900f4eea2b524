# SPDX-License-Identifier: Apache-2.0
"""Which modules stay whole in a stage, and what each of them is taken to cost."""

import itertools

import pytest
import spmdx
import torch
from pipeline_models import CASES
from spmdx._pipelines import choice
from spmdx._pipelines.units import units_of
from torch import nn

BLOCKS = [f"blocks.{i}" for i in range(4)]
UNITS = {
    "gpt": ["embedding", *BLOCKS, "norm", "head"],
    "experts": ["embedding", *BLOCKS, "norm", "head"],  # experts are lists within blocks
    "llama": ["tokens", *(f"layers.{i}" for i in range(4)), "norm", "head"],
    "unet": ["down1", "down2", "middle", "up2", "up1", "head"],
}
WIDTH, ROWS = 8, 16


def names(model, least=1):
    return list(units_of(model, least).whole)


@pytest.mark.parametrize("name", UNITS)
def test_blocks_and_what_is_beside_them(name):
    assert names(CASES[name].build()) == UNITS[name]


def layer(*more):
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh(), *more)


def test_lists_of_lists():
    assert names(nn.Sequential(layer(), layer())) == ["0", "1"]
    assert names(nn.Sequential(layer(layer()), layer(layer()))) == [
        *("0.0", "0.1", "0.2.0", "0.2.1"),
        *("1.0", "1.1", "1.2.0", "1.2.1"),
    ]
    assert names(nn.ModuleDict({"a": nn.ModuleList([layer(), layer()])})) == ["a.0", "a.1"]


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))


def test_blocks_are_opened_where_there_are_too_few():
    model = nn.Sequential(Half(), Half())
    assert names(model, 2) == ["0", "1"]
    assert names(model, 3) == [f"{half}.blocks.{i}" for half in range(2) for i in range(3)]


def test_a_shared_module_is_one_unit():
    block = nn.Linear(2, 2)
    assert names(nn.ModuleList([block, nn.Linear(2, 2), block])) == ["0", "1"]


class Seen:
    """What is handed to the search, and what it finds."""

    def __init__(self, monkeypatch):
        self.layers, self.names, self.first = [], [], []
        search = choice._C.choose_cuts
        monkeypatch.setattr(choice._C, "choose_cuts", lambda *args: self.note(search, *args))

    def note(self, search, layers, names, *rest):
        self.layers, self.names, self.first = layers, names, search(layers, names, *rest)
        return self.first


@pytest.fixture
def seen(monkeypatch):
    return Seen(monkeypatch)


def call(model, p, rows=ROWS, data=1):
    """A first call; `data` devices of each stage share the rows."""
    mesh = spmdx.Mesh(range(data * p), (p, data), ("pipe", "data"))
    x = torch.ones(rows, WIDTH).to("spmdx")
    spmdx.mark_sharding(x, mesh, ("data", None))
    spmdx.nn.pipeline(model, mesh)(x)


def block(inner=2 * WIDTH):
    return nn.Sequential(nn.Linear(WIDTH, inner), nn.Tanh(), nn.Linear(inner, WIDTH))


def test_bytes_of_a_block_are_those_of_its_shards(seen):
    model = nn.Sequential(*(block() for _ in range(4))).to("spmdx")
    model[3].requires_grad_(False)
    for rows, data in ((ROWS, 1), (ROWS // 2, 2)):
        call(model, 2, data=data)
        parameters = 4 * (2 * 2 * WIDTH * WIDTH + 3 * WIDTH)
        states = [layer["state_bytes"] for layer in seen.layers]
        assert states == [4 * parameters] * 3 + [parameters]
        # the input of each product of matrices; what is frozen needs the result of tanh only
        kept = [layer["activation_bytes"] for layer in seen.layers]
        assert kept == [4 * rows * 3 * WIDTH] * 3 + [4 * rows * 2 * WIDTH]


def test_what_later_units_read_is_sent(seen):
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(block() for _ in range(3))
            self.last = nn.Bilinear(WIDTH, WIDTH, WIDTH)

        def forward(self, x):
            first = self.blocks[0](x)
            x = self.blocks[2](self.blocks[1](first))
            return self.last(first, x)

    call(Skips().to("spmdx"), 2)
    one, *two, none = [layer["send_ns"] for layer in seen.layers]
    assert none == 0 < one < two[0] == two[1] < 2 * one  # the latency is that of one message


@pytest.mark.parametrize("p", [2, 3, 4])
def test_no_other_cuts_have_a_shorter_step(p, seen):
    torch.manual_seed(p)
    model = nn.Sequential(*(block(64 * int(torch.randint(1, 40, ()))) for _ in range(9)))
    call(model.to("spmdx"), p, rows=256)
    layers, m = seen.layers, 4 * p

    def step(first):
        ends = [*first[1:], len(layers)]
        times = [
            sum(layer["forward_ns"] + layer["backward_ns"] for layer in layers[a:b])
            + (layers[b - 1]["send_ns"] if b < len(layers) else 0)
            for a, b in zip(first, ends, strict=True)
        ]
        return sum(times) + (m - 1) * max(times)

    every = itertools.combinations(range(1, len(layers)), p - 1)
    assert step(seen.first) == min(step([0, *cuts]) for cuts in every)
