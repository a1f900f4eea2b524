# SPDX-License-Identifier: Apache-2.0
"""Models and batches of drafted programs: layers of batches [rows, places, width] in float64."""

import torch
import torch.nn.functional as F
from fault_drafts import Program

WORDS, PLACES, BINS = 11, 3, 7


class Raised(ValueError):
    """An error of the program's own."""


class Kernel:
    """An op that raises when it runs, once it has been armed."""

    def __init__(self) -> None:
        self.left: int | None = None  # calls until it raises

    def run(self) -> None:
        left = self.left
        if left is None:
            return
        self.left = left - 1 if left else None
        if not left:
            raise Raised("a kernel of this process fails")


kernel = Kernel()


@torch.library.custom_op("faults::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    kernel.run()
    return x.clone()


pass_on.register_fake(torch.empty_like)


class Layer(torch.nn.Module):
    """One of ``fault_drafts.LAYERS``."""

    def __init__(self, kind: str, width: int):
        super().__init__()
        self.kind = kind
        if kind == "linear":
            self.inner = torch.nn.Linear(width, width)
        if kind == "table":
            self.inner = torch.nn.Embedding(WORDS, width)
        if kind == "attention":
            self.inner = torch.nn.Linear(width, 3 * width, bias=False)
        if kind == "conv":
            self.inner = torch.nn.Conv1d(width, width, 3, padding=1)
        if kind == "norm":
            self.inner = torch.nn.LayerNorm(width)
            self.register_buffer("seen", torch.zeros(width))

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return getattr(self, f"_{self.kind}")(x, words)

    def _linear(self, x, words):
        return x + F.gelu(self.inner(x))

    def _table(self, x, words):
        return x + self.inner(words)

    def _attention(self, x, words):
        q, k, v = self.inner(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def _conv(self, x, words):
        return x + 0.3 * self.inner(x.transpose(1, 2)).transpose(1, 2)

    def _norm(self, x, words):
        with torch.no_grad():
            self.seen.mul_(0.9).add_(x.mean((0, 1)), alpha=0.1)
        return self.inner(x)

    def _dropout(self, x, words):
        return F.dropout(x, 0.3)

    def _noise(self, x, words):
        return x + 0.1 * torch.randn_like(x)

    def _pass(self, x, words):
        y = x.detach()
        return x + (pass_on(y) - y)


class Model(torch.nn.Module):
    def __init__(self, program: Program):
        super().__init__()
        self.first = torch.nn.Embedding(WORDS, program.width)
        self.layers = torch.nn.ModuleList(Layer(k, program.width) for k in program.layers)
        self.head = torch.nn.Linear(program.width, WORDS)


def made(program: Program) -> Model:
    """With the same parameters wherever it is called."""
    before = torch.get_rng_state()
    torch.manual_seed(program.seed)
    model = Model(program).double()
    torch.set_rng_state(before)
    return model


def batch(program: Program, step: int) -> dict[str, torch.Tensor]:
    """Of a step: numbers, words to read and to guess, and bins that are counted."""
    draw = torch.Generator().manual_seed(1000 * program.seed + step)
    shape = (program.rows, PLACES)
    return {
        "x": torch.randn(*shape, program.width, generator=draw, dtype=torch.float64),
        "words": torch.randint(WORDS, shape, generator=draw),
        "wanted": torch.randint(WORDS, shape, generator=draw),
        "bins": torch.randint(BINS, shape, generator=draw),
    }
