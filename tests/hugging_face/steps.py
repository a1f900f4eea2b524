# SPDX-License-Identifier: Apache-2.0
"""A training step of a Hugging Face model as a user writes it: on the CPU, or on a mesh."""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass

import spmdx
import torch
from families import FAMILIES
from models import assert_equal  # also sets 8 devices and one thread

PLANS = ("batch", "fully sharded", "tensor parallel")


@dataclass(frozen=True)
class Place:
    """A plan on a mesh. With two axes the batch is cut by the first, weights by the last."""

    plan: str
    shape: tuple = (4,)

    def __str__(self):
        return f"{self.plan} {'x'.join(map(str, self.shape))}"

    def mesh(self):
        names = ("data", "model")[-len(self.shape) :]
        return spmdx.Mesh(range(torch.Size(self.shape).numel()), self.shape, names)

    def mark(self, family, model, batch):
        """Annotates parameters and batch; nothing else tells spmdx of the model."""
        mesh = self.mesh()
        first, last = mesh.axis_names[0], mesh.axis_names[-1]
        if self.plan != "tensor parallel" or len(self.shape) > 1:
            for tensor in batch.values():
                cut(tensor, mesh, 0, first)
        for name, parameter in model.named_parameters():
            if self.plan == "fully sharded":
                cut(parameter, mesh, 0, last)
            elif self.plan == "tensor parallel" and parameter.dim() > 1:
                by_input = any(word in name for word in family.rows)
                stored_by_input = any(word in name for word in family.transposed)
                cut(parameter, mesh, int(by_input != stored_by_input), last)


def cut(tensor, mesh, dim, axis):
    if tensor.dim():
        spec = tuple(axis if d == dim else None for d in range(tensor.dim()))
        spmdx.mark_sharding(tensor, mesh, spec)


@dataclass
class Step:
    """What a step gave, on the CPU, and what it cost on a mesh."""

    loss: torch.Tensor
    gradients: dict
    parameters: dict  # after the step
    report: object = None  # of its last program
    counters: dict = None
    fallbacks: dict = None


def on_host(named):
    return {name: t.detach().cpu() for name, t in named if t is not None}


def made(name, device, dtype, batch, rows, dropout, rounded):
    """The model and a batch of a family, from a seed, of numbers that `rounded` has as well."""
    family = FAMILIES[name]
    torch.manual_seed(0)
    model = family.build(**dict.fromkeys(family.dropout, dropout)).to(rounded).to(dtype)
    inputs = (batch or family.batch)(rows)
    inputs = {k: t.to(rounded) if t.is_floating_point() else t for k, t in inputs.items()}
    inputs = {k: t.to(device, dtype if t.is_floating_point() else None) for k, t in inputs.items()}
    return model.to(device).train(), inputs


def train(
    name: str,
    place: Place | None = None,
    batch: Callable | None = None,
    rows: int = 8,
    dropout: float = 0.0,
    prepare: Callable = lambda model: None,
    amp: bool = False,
    optimizer: Callable | None = None,
    dtype: torch.dtype | None = None,
    rounded: torch.dtype | None = None,
) -> Step:
    """One step of a family: plain PyTorch on the CPU without a place, else on its mesh."""
    device = "cpu" if place is None else "spmdx"
    dtype = torch.float32 if amp else dtype or FAMILIES[name].dtype
    model, inputs = made(name, device, dtype, batch, rows, dropout, rounded or dtype)
    if place is not None:
        place.mark(FAMILIES[name], model, inputs)
        spmdx.sync(wait=True)  # moving data to its place is no part of the step
        spmdx._C.clear_cache()  # an equal program of another test would leave nothing to report
        spmdx.debug.reset_counters()
    prepare(model)
    optimizer = optimizer(model.parameters()) if optimizer else None
    torch.manual_seed(1)
    with torch.autocast(device, torch.bfloat16) if amp else contextlib.nullcontext():
        loss = model(**inputs).loss
    loss.backward()
    if optimizer:
        optimizer.step()
    cost = cost_of_step() if place is not None else {}
    gradients = on_host((k, p.grad) for k, p in model.named_parameters())
    return Step(loss.detach().cpu(), gradients, on_host(model.named_parameters()), **cost)


def cost_of_step():
    spmdx.sync(wait=True)
    return {
        "report": spmdx.explain(),
        "counters": spmdx.debug.counters(),
        "fallbacks": spmdx.debug.fallbacks(),
    }


@functools.cache
def reference(name, **how):
    """The step in plain PyTorch on the CPU; once a process."""
    return train(name, **how)


def assert_same(got: Step, want: Step, relative: float, parameters: bool = False):
    """Loss, every gradient and, if asked, every parameter after the step agree."""
    assert got.loss.isfinite()
    assert_equal(got.loss, want.loss, "the loss", relative)
    assert got.gradients.keys() == want.gradients.keys()
    for name, gradient in want.gradients.items():
        assert_equal(got.gradients[name], gradient, f"the gradient of {name}", relative)
    for name, parameter in want.parameters.items() if parameters else ():
        assert_equal(got.parameters[name], parameter, f"{name} after the step", relative)
