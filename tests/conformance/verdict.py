# SPDX-License-Identifier: Apache-2.0
"""What the oracles share: results and gradients, how they are compared, what became of an entry."""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import spmdx
import torch
from settings import Setting
from spmdx._rules.closeness import difference as numbers_differ

# Of a tensor's largest finite number: sums in another order; in 16 bits a rounding on either side.
RELATIVE = {
    torch.float32: 2e-4,
    torch.complex64: 2e-4,
    torch.bfloat16: 2 * torch.finfo(torch.bfloat16).eps,
    torch.float16: 2 * torch.finfo(torch.float16).eps,
    torch.int64: 0.0,
    torch.bool: 0.0,
}
RELATIVE_IN_DOUBLE = 1e-9
SIXTEEN_BITS = (torch.bfloat16, torch.float16)
DOUBLE = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
WORSE = 2  # as many times the error of eager's own 16-bit numbers may be made on a mesh
NUDGED = 4  # runs of eager on operands that are one rounding off, which may be in error as well
SEED = 7
Results = tuple[list[Any], list[torch.Tensor | None]]


@dataclasses.dataclass
class Verdict:
    """What became of an entry.

    Attributes:
        op: its name.
        runs: placements that ran, and were equal.
        rounded: how many of them were equal in double precision only, or in 16 bits no further from
            the result in double precision than eager's numbers: these cancel.
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
        excuse: Callable[[Results], str] | None = None,
        **how,
    ) -> None:
        """Runs something on a mesh, compares it, and notes what came of it.

        Args:
            where: what is said of trouble.
            run: gives results and gradients.
            wanted: what they should be.
            excuse: asked where they differ: what is wrong with what was found all the same.
            how: further arguments of :func:`compare`.
        """
        spmdx.debug.reset_counters()
        try:
            found = run()
            said = compare(found, wanted, **how)
            if said and excuse is not None and not excuse(found):
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


def gradients(
    outputs: list[Any], tensors: list[torch.Tensor], device: str, nudge: int | None = None
) -> list[Any]:
    """Of tensors that want one, for a random cotangent of every output, nudged with that seed."""
    made = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    wanted = [t for t in tensors if t.requires_grad]
    if not made or not wanted:
        return [None] * len(wanted)
    drawn = [cotangent(o, at) for at, o in enumerate(made)]
    upstream = [(c if nudge is None else nudged(c, nudge)).to(device) for c in drawn]
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
    drawn_as = torch.complex64 if output.is_complex() else torch.float32
    return torch.randn(output.shape, generator=generator, dtype=drawn_as).to(output.dtype)


def on_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf


def difference(found: Any, wanted: Any, values: bool = True, close: float | None = None) -> str:
    """How two leaves differ by more than their dtype allows, or `close`; empty if they do not."""
    if type(found) is not type(wanted):
        return f"a {type(found).__name__} where PyTorch gives a {type(wanted).__name__}"
    if not isinstance(wanted, torch.Tensor):
        return "" if same_number(found, wanted) else f"{found!r}, not {wanted!r}"
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype} {list(found.shape)}, not {wanted.dtype} {list(wanted.shape)}"
    if not values:
        return ""
    allowed = RELATIVE.get(wanted.dtype, RELATIVE_IN_DOUBLE) if close is None else close
    return numbers_differ(found, wanted, allowed)


def same_number(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        close = math.isclose(found, wanted, rel_tol=RELATIVE[torch.float32])
        return close or (math.isnan(found) and math.isnan(wanted))
    return found == wanted


def compare(
    found: Results, wanted: Results, values: bool = True, close: float | None = None
) -> str:
    """How results or gradients differ; empty where they do not."""
    for what, here, there in zip(("result", "gradient"), found, wanted, strict=True):
        if len(here) != len(there):
            return f"{len(here)} {what}s, not {len(there)}"
        for at, (x, y) in enumerate(zip(here, there, strict=True)):
            said = difference(x, y, values, close)
            if said:
                return f"{what} {at}: {said}"
    return ""


def nudged(value: Any, seed: int) -> Any:
    """A leaf of 16 bits with every number one rounding up or down; any other as it is."""
    if not isinstance(value, torch.Tensor) or value.dtype not in SIXTEEN_BITS:
        return value
    signs = torch.randint(2, value.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    moved = value.detach() * (1 + signs * torch.finfo(value.dtype).eps)
    return moved.to(value.dtype).requires_grad_(value.requires_grad)


def worse(found: Results, eager: list[Results], exact: Results) -> str:
    """What of 16 bits is further from the exact numbers than eager's is; empty where nothing is.

    A result of several roundings may be off by much more than one, in eager as on a mesh: partial
    sums are no less exact than eager's, so neither is what comes of them. Eager may be lucky once:
    it runs on operands that are one rounding off as well.
    """
    for which, what in enumerate(("result", "gradient")):
        columns = zip(found[which], exact[which], *(run[which] for run in eager), strict=True)
        for at, (x, z, *ys) in enumerate(columns):
            # Beside numbers of 16 bits those of f32 may be what rounding leaves of a zero.
            rounded = isinstance(ys[0], torch.Tensor) and ys[0].is_floating_point()
            said = worse_number(x, ys, z) if rounded else difference(x, ys[0])
            if said:
                return f"{what} {at}: {said}"
    return ""


def worse_number(found: torch.Tensor, eager: list[torch.Tensor], exact: torch.Tensor) -> str:
    wanted = eager[0]
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return f"{found.dtype} {list(found.shape)}, not {wanted.dtype} {list(wanted.shape)}"
    if exact.shape != wanted.shape:
        return f"eager has {list(exact.shape)} in double precision"
    finite = wanted.isfinite() & exact.isfinite()
    if not torch.equal(found.isfinite() & finite, finite):
        return "numbers that are not finite, where PyTorch's are"
    if not torch.equal(found[~finite].nan_to_num(), wanted[~finite].nan_to_num()):
        return "other numbers that are not finite"
    if not finite.any():
        return ""
    exact = exact[finite].double()
    runs = [found, *(y for y in eager if y.shape == wanted.shape)]
    errors = [(x[finite].double() - exact).abs() for x in runs]
    error, *usual = [e.nan_to_num().max().item() for e in errors]
    digits = RELATIVE.get(wanted.dtype, RELATIVE_IN_DOUBLE)
    allowed = WORSE * max(usual) + digits * exact.abs().max().item()
    return "" if error <= allowed else f"off by {error:.3g} where eager is by {max(usual):.3g}"
