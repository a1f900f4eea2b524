# SPDX-License-Identifier: Apache-2.0
"""Small models with batches, losses and tensor-parallel annotations, and a trainer for any mesh."""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import spmdx
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
from train_gpt import GPT, Config  # noqa: E402

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
torch.set_num_threads(1)

GPT_TINY = Config(vocab=24, layers=2, width=16, heads=8, context=8, dropout=0.0)


class ConvNet(nn.Module):
    """Convolutions, batch norm (statistics over the whole batch) and both kinds of pooling."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Reader(nn.Module):
    """An LSTM over a sequence and a linear layer on its last state."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Translator(nn.Module):
    """The encoder-decoder `nn.Transformer` with a causal target."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.transformer = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 12)

    def forward(self, source, target):
        mask = torch.full((target.shape[1],) * 2, float("-inf"), device=target.device).triu(1)
        y = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=mask.to(torch.float64)
        )
        return self.head(y)


def mlp():
    return nn.Sequential(
        nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 6)
    )


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """One model: how to build it, its batch (inputs, target), and what tensor parallel shards."""

    build: Callable
    batch: Callable  # batch size -> (tuple of inputs, target)
    tensor_parallel: dict = field(default_factory=dict)  # pattern of a name -> partition spec


COLUMN, COLUMN_BIAS, ROW = ("model", None), ("model",), (None, "model")

CASES = {
    "mlp": Case(
        mlp,
        lambda n: ((numbers(n, 10),), torch.randint(6, (n,))),
        {"0.weight": COLUMN, "0.bias": COLUMN_BIAS, "2.weight": ROW},
    ),
    "gpt": Case(
        lambda: GPT(GPT_TINY),
        lambda n: ((torch.randint(24, (n, 8)),), torch.randint(24, (n, 8))),
        {
            **{
                f"blocks.*.{name}.weight": COLUMN
                for name in ("attention.q", "attention.k", "attention.v", "up")
            },
            **{
                f"blocks.*.{name}.bias": COLUMN_BIAS
                for name in ("attention.q", "attention.k", "attention.v", "up")
            },
            "blocks.*.attention.out.weight": ROW,
            "blocks.*.down.weight": ROW,
        },
    ),
    "conv": Case(ConvNet, lambda n: ((numbers(n, 3, 8, 8),), torch.randint(5, (n,)))),
    "lstm": Case(Reader, lambda n: ((numbers(n, 4, 6),), torch.randint(5, (n,)))),
    "transformer": Case(
        Translator,
        lambda n: (
            (torch.randint(12, (n, 5)), torch.randint(12, (n, 4))),
            torch.randint(12, (n, 4)),
        ),
        {"*.linear1.weight": COLUMN, "*.linear1.bias": COLUMN_BIAS, "*.linear2.weight": ROW},
    ),
}


@dataclass(frozen=True)
class Plan:
    """Where a run lies: mesh shape and axis names, whether the parameters follow "data"."""

    shape: tuple
    axes: tuple
    fully_sharded: bool = False

    def mesh(self):
        devices = torch.Size(self.shape).numel()
        return spmdx.Mesh(range(devices), self.shape, self.axes)


def annotate(model, case, plan, mesh):
    """Mark the parameters of `model` as `plan` says; "model" specs need that axis."""
    for name, p in model.named_parameters():
        spec = next(
            (s for pattern, s in case.tensor_parallel.items() if fnmatch(name, pattern)), None
        )
        if spec is not None and "model" in plan.axes:
            spmdx.mark_sharding(p, mesh, spec)
        elif plan.fully_sharded:
            dim = next((d for d, n in enumerate(p.shape) if n % mesh.size() == 0), 0)
            spec = tuple("data" if d == dim else None for d in range(p.dim()))
            spmdx.mark_sharding(p, mesh, spec)


def make(name, seed=0, cases=CASES):
    """The model of a case on the CPU, in double precision, from a seed."""
    torch.manual_seed(seed)
    return cases[name].build().to(torch.float64)


def data(name, sizes, seed=1, cases=CASES):
    """One batch a step, of the given sizes."""
    torch.manual_seed(seed)
    return [cases[name].batch(n) for n in sizes]


@dataclass
class Trace:
    """What training gave, all on the CPU, and what it cost."""

    losses: list = field(default_factory=list)
    gradients: list = field(default_factory=list)  # a dict by name for every step
    state: dict = None  # parameters and buffers at the end
    model: nn.Module = None
    optimizer: object = None
    report: object = None  # of the last new plan of a step
    plans: list = field(default_factory=list)  # plans_compiled after every step


def run(
    name,
    batches,
    plan=None,
    device="spmdx",
    clip=None,
    schedule=False,
    keep_gradients=True,
    model=None,
):
    """Train a case on plain CPU PyTorch (device="cpu"), or on the mesh of `plan`."""
    model = (model if model is not None else make(name)).to(device)
    mesh = plan.mesh() if plan is not None else None
    if mesh is not None:
        annotate(model, CASES[name], plan, mesh)
    # eps: a gradient that is zero but for rounding (a bias before batch norm) stays near zero.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-6)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) if schedule else None
    trace = Trace(model=model, optimizer=optimizer)
    losses = []
    for inputs, target in batches:
        inputs, target = [t.to(device) for t in inputs], target.to(device)
        if mesh is not None and "data" in plan.axes:
            for t in (*inputs, target):
                spmdx.mark_sharding(t, mesh, ("data",) + (None,) * (t.dim() - 1))
        output = model(*inputs)
        loss = F.cross_entropy(output.flatten(0, -2), target.flatten())
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        held = {n: p.grad for n, p in model.named_parameters()} if keep_gradients else {}
        optimizer.step()
        optimizer.zero_grad()
        if scheduler is not None:
            scheduler.step()
        if device != "cpu":
            before = spmdx.debug.counters()["plans_compiled"]
            spmdx.mark_step()
            trace.plans.append(spmdx.debug.counters()["plans_compiled"])
            if trace.plans[-1] > before:
                trace.report = spmdx.explain()
        trace.gradients.append({n: g.cpu() for n, g in held.items()})
        losses.append(loss.detach())
    trace.losses = [loss.item() for loss in losses]
    trace.state = {n: t.detach().cpu() for n, t in copy.copy(model.state_dict()).items()}
    return trace


def assert_equal(got, want, what, relative=1e-9):
    """Every element within `relative` of the tensor's largest one (or of 1e-3, for zeros)."""
    got, want = torch.as_tensor(got), torch.as_tensor(want)
    assert got.shape == want.shape and got.dtype == want.dtype, f"{what}: {got.shape} {got.dtype}"
    if not want.is_floating_point():
        assert torch.equal(got, want), what
        return
    if want.numel() == 0:
        return
    scale = max(want.abs().max().item(), 1e-3)
    error = (got - want).abs().max().item() / scale
    assert error <= relative, f"{what}: differs by {error:.2e} of its largest element"


def assert_same(got, want):
    """Two traces agree: losses, every gradient of every step, parameters and buffers."""
    for step, (a, b) in enumerate(zip(got.losses, want.losses, strict=True)):
        assert_equal(
            torch.tensor(a, dtype=torch.float64),
            torch.tensor(b, dtype=torch.float64),
            f"loss of step {step}",
        )
    for step, (a, b) in enumerate(zip(got.gradients, want.gradients, strict=True)):
        for name in a:
            assert_equal(a[name], b[name], f"gradient of {name} in step {step}")
    for name in want.state:
        assert_equal(got.state[name], want.state[name], f"{name} at the end")
