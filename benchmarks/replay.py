# SPDX-License-Identifier: Apache-2.0
"""Time of the calling thread a step takes: eager, traced, and replayed by spmdx.compile.

    python benchmarks/replay.py [--layers 2 12] [--rounds 7] [--steps 40]

A step of a small GPT with AdamW on one device. Rounds are interleaved in one process; the median
of them counts, of the time that the thread itself runs, not of what it waits for. Of eager that is
all of its time, kernels included: these are small (width 32, 32 tokens).
"""

import argparse
import statistics
import time

import spmdx
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

WIDTH, HEADS, TOKENS, WORDS = 32, 4, 16, 64


class Block(nn.Module):
    """Attention and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, _ = x.shape
        parts = self.qkv(self.before(x)).view(rows, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, tokens, WIDTH))
        return x + self.down(functional.gelu(self.up(self.behind(x))))


class Gpt(nn.Module):
    """Blocks between an embedding and a head."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.zeros(TOKENS, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.words(ids) + self.places)))


def step_on(device: str, layers: int):
    torch.manual_seed(0)
    model = Gpt(layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(ids, targets):
        loss = functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def ways_of(layers: int):
    draw = torch.Generator().manual_seed(0)
    ids, targets = (torch.randint(WORDS, (2, TOKENS), generator=draw) for _ in range(2))
    on_device = ids.to("spmdx"), targets.to("spmdx")
    eager, traced = step_on("cpu", layers), step_on("spmdx", layers)
    replayed = spmdx.compile(step_on("spmdx", layers))
    return {
        "eager": lambda: eager(ids, targets),
        "traced": lambda: (traced(*on_device), spmdx.mark_step()),
        "replayed": lambda: replayed(*on_device),
    }


def thread_us(call, steps: int) -> float:
    """Of one step, without those that are recorded to be compared."""
    times = []
    for _ in range(steps):
        begun = time.thread_time_ns()
        call()
        times.append(time.thread_time_ns() - begun)
    spmdx.sync(wait=True)
    return statistics.median(times) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 12])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("layers", "eager µs", "traced / eager", "replayed / eager")
    for layers in options.layers:
        ways = ways_of(layers)
        for call in ways.values():
            for _ in range(24):
                call()
        times = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, call in ways.items():
                times[way].append(thread_us(call, options.steps))
        eager, traced, replayed = (statistics.median(times[way]) for way in ways)
        row = (f"{eager:.0f}", f"{traced / eager:.2f}", f"{replayed / eager:.3f}")
        table.add_row(str(layers), *row)
    Console().print(table)


if __name__ == "__main__":
    main()
