# SPDX-License-Identifier: Apache-2.0
"""Runs of the examples as functions: on a mesh, and in plain PyTorch with the same numbers."""

import contextlib
import importlib
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import spmdx
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))


@dataclass(frozen=True)
class Case:
    """An example: the axes of its mesh, how many steps a test makes, the meshes it is run on."""

    axes: tuple[str, ...]
    steps: int
    shapes: tuple[tuple[int, ...], ...]


CASES = {
    "train_llama": Case(("data", "model"), 4, ((4, 2), (1, 3), (2, 2))),
    "train_moe": Case(("expert",), 4, ((8,), (3,))),
    "train_vit": Case(("fsdp",), 4, ((8,), (3,))),
    "train_resnet": Case(("data", "rows"), 4, ((4, 2), (1, 3))),
    "train_diffusion": Case(("data",), 3, ((8,), (3,))),
    "train_lora": Case(("data", "model"), 3, ((4, 2), (1, 3), (2, 1))),
    "train_lstm": Case(("data",), 4, ((8,), (3,))),
    "train_policy": Case(("data",), 6, ((8,), (3,), (2,))),
    "train_gan": Case(("data", "model"), 10, ((4, 2), (1, 3), (2, 2))),
    "generate": Case(("data", "model"), 12, ((4, 2), (1, 3), (2, 2))),
}
DRAW_ON_THE_DEVICE = ("train_diffusion", "train_policy", "train_gan")


def mesh_of(name, shape):
    """A mesh of this shape with the axes of the example; None for None."""
    return None if shape is None else spmdx.Mesh(range(math.prod(shape)), shape, CASES[name].axes)


def module_of(name):
    return importlib.import_module(name)


def tensors(value):
    """The numbers of what an example returns, structures flattened."""
    if isinstance(value, torch.Tensor):
        return [value.double()]
    if isinstance(value, tuple):
        return [part for each in value for part in tensors(each)]
    return [torch.tensor(value, dtype=torch.float64)]


def run(name, shape, steps=None):
    """What the example computes: losses, and what it draws or writes in the end."""
    module, mesh = module_of(name), mesh_of(name, shape)
    made = module.train(mesh, CASES[name].steps if steps is None else steps)
    if name == "train_diffusion":
        made = (made[1], module.draw(made[0], 8, mesh))
    if name == "generate":
        (ids,) = module.batches(1, seed=2)
        prompt = ids[:, : module.WORD + 1].to("cpu" if mesh is None else "spmdx")
        if mesh is not None:
            spmdx.mark_sharding(prompt, mesh, ("data", None))
        made = (made[1], module.generate(made[0], prompt, module.WORD).cpu())
    return tensors(made)


def plainly(name):
    """What the example computes in plain PyTorch, by the random numbers of the device."""
    with numbers_of_the_device() if name in DRAW_ON_THE_DEVICE else contextlib.nullcontext():
        return run(name, None)


@contextlib.contextmanager
def numbers_of_the_device():
    """Draws for the CPU come from the device's generator, but for those with one of their own."""
    randn, randint, multinomial = torch.randn, torch.randint, torch.multinomial

    def drawn(draw):
        def wrapper(*args, **options):
            if "device" not in options:  # as where parameters and data are made
                return draw(*args, **options)
            return draw(*args, **{**options, "device": "spmdx"}).cpu()

        return wrapper

    with (
        mock.patch("torch.randn", drawn(randn)),
        mock.patch("torch.randint", drawn(randint)),
        mock.patch(
            "torch.randn_like", lambda x: randn(x.shape, dtype=x.dtype, device="spmdx").cpu()
        ),
        mock.patch("torch.multinomial", lambda p, *a: multinomial(p.to("spmdx"), *a).cpu()),
    ):
        yield
