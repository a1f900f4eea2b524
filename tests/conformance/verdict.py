# SPDX-License-Identifier: Apache-2.0
"""What the judges share: results and gradients, how they are compared, what became of an entry."""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import spmdx
import torch
from settings import Setting
from spmdx._closeness import difference as numbers_differ

RELATIVE = 2e-4  # of a tensor's largest finite number: f32, summed in another order
RELATIVE_IN_DOUBLE = 1e-9
SEED = 7
Results = tuple[list[Any], list[torch.Tensor | None]]


@dataclasses.dataclass
class Verdict:
    """What became of an entry.

    Attributes:
        op: its name.
        runs: placements that ran, and were equal.
        rounded: how many of them were equal in double precision only: numbers cancel.
        fell_back: how many of them met an op without a rule.
        fallbacks: those ops, with how often.
        wire_bytes: what a device received in all runs.
        trouble: what differed or was raised, with sample and placement.
        note: why nothing ran.
    """

    op: str
    runs: int = 0
    rounded: int = 0
    fell_back: int = 0
    fallbacks: dict[str, int] = dataclasses.field(default_factory=collections.Counter)
    wire_bytes: int = 0
    trouble: list[str] = dataclasses.field(default_factory=list)
    note: str = ""

    def hold(
        self,
        where: str,
        run: Callable[[], Results],
        wanted: Results,
        in_double: Callable[[], str] | None = None,
        **how,
    ) -> None:
        """Runs something on a mesh, compares it, and notes what came of it.

        Args:
            where: what is said of trouble.
            run: gives results and gradients.
            wanted: what they should be.
            in_double: asked where they differ: how they do in double precision.
            how: further arguments of :func:`compare`.
        """
        spmdx.debug.reset_counters()
        try:
            said = compare(run(), wanted, **how)
            if said and in_double is not None and not in_double():
                self.rounded += 1
                said = ""
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        if said:
            self.trouble.append(f"{where}: {said}")
            return
        self.runs += 1
        self.wire_bytes += spmdx.debug.counters()["wire_bytes"]
        fallbacks = spmdx.debug.fallbacks()
        self.fell_back += bool(fallbacks)
        self.fallbacks.update(fallbacks)


def mesh_of(setting: Setting) -> spmdx.Mesh:
    """Axes x and y."""
    names = ("x", "y")[: len(setting.mesh)]
    return spmdx.Mesh(range(math.prod(setting.mesh)), setting.mesh, names)


def gradients(outputs: list[Any], tensors: list[torch.Tensor], device: str) -> list[Any]:
    """Of tensors that want one, for a random cotangent of every output."""
    made = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    wanted = [t for t in tensors if t.requires_grad]
    if not made or not wanted:
        return [None] * len(wanted)
    upstream = [cotangent(o, at).to(device) for at, o in enumerate(made)]
    return list(torch.autograd.grad(made, wanted, upstream, allow_unused=True))


def draws_numbers(run: Callable[[], Results]) -> bool:
    """Whether something that begins with ``torch.manual_seed(SEED)`` draws from the generator."""
    run()
    after = torch.get_rng_state()
    torch.manual_seed(SEED)
    return not torch.equal(after, torch.get_rng_state())


def cut(tensor: torch.Tensor, mesh: spmdx.Mesh) -> None:
    """Marks dim 0, where there is one."""
    if tensor.dim():
        spmdx.mark_sharding(tensor, mesh, ("x", *[None] * (tensor.dim() - 1)))


def cotangent(output: torch.Tensor, at: int) -> torch.Tensor:
    """Random, and the same on every device."""
    generator = torch.Generator().manual_seed(at)
    return torch.randn(output.shape, generator=generator).to(output.dtype)


def on_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf


def difference(found: Any, wanted: Any, values: bool = True, close: float = RELATIVE) -> str:
    """How two leaves differ; empty where they do not."""
    if type(found) is not type(wanted):
        return f"a {type(found).__name__} where PyTorch gives a {type(wanted).__name__}"
    if not isinstance(wanted, torch.Tensor):
        return "" if same_number(found, wanted) else f"{found!r}, not {wanted!r}"
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype} {list(found.shape)}, not {wanted.dtype} {list(wanted.shape)}"
    if not values:
        return ""
    return numbers_differ(found, wanted, close)


def same_number(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        close = math.isclose(found, wanted, rel_tol=RELATIVE)
        return close or (math.isnan(found) and math.isnan(wanted))
    return found == wanted


def compare(found: Results, wanted: Results, values: bool = True, close: float = RELATIVE) -> str:
    """How results or gradients differ; empty where they do not."""
    for what, here, there in zip(("result", "gradient"), found, wanted, strict=True):
        if len(here) != len(there):
            return f"{len(here)} {what}s, not {len(there)}"
        for at, (x, y) in enumerate(zip(here, there, strict=True)):
            said = difference(x, y, values, close)
            if said:
                return f"{what} {at}: {said}"
    return ""
