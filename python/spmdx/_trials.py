# SPDX-License-Identifier: Apache-2.0
"""Trials: all that the rule of a recorded op offers, run on shards and held against the whole."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spmdx import _C

WHOLE, SUM = -1, -2  # how an operand lies in a guess; else the dim that is cut
MESHES = ((2,), (3,), (4,), (2, 2))  # shapes that rules are tried on
MOST_GUESSES = 600  # for one op over one axis
CLOSE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.bfloat16: 4e-2, torch.float16: 4e-3}
CLOSE_BY_DEFAULT = 2e-4  # of a tensor's largest finite number: f32, added in another order
SMALL = 1e-2  # the largest number of a tensor counts as at least that
UNWRITTEN = ("aten.empty", "aten.new_empty")  # memory nobody wrote has no value
Layout = dict[str, Any]


@dataclasses.dataclass
class Findings:
    """What became of the trials of one op.

    Attributes:
        tried: how many ways its rule offers.
        wrong: those whose result differs or that raise, with the layout and what was said.
        missed: layouts that work as well and that the rule does not offer, with the bytes a
            device receives because of that.
    """

    tried: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)
    missed: dict[str, int] = dataclasses.field(default_factory=dict)


def record(call: Callable[[], Any]) -> tuple["_C.Recording", Any]:
    """What a call on tensors of the device records, and what it returned."""
    _C.flush()
    made = call()
    read = pytree.tree_map_only(torch.Tensor, torch.clone, made)  # views are recorded when read
    return _C.recording(), read


def mesh_of(*shape: int) -> "_C.MeshHandle":
    """A mesh of so many devices along x and y; they need not exist."""
    return _C.MeshHandle(
        list(range(torch.Size(shape).numel())), list(shape), ["x", "y"][: len(shape)]
    )


# ---- shards of a value and back -----------------------------------------------------------------


def shards_of(value: torch.Tensor, layout: Layout) -> list[torch.Tensor]:
    """What every shard of a layout holds; parts of a sum are unequal, so that errors show."""
    parts = parts_of(value, layout["reduction"], max(layout["parts"]) + 1)
    pieces = zip(layout["boxes"], layout["parts"], strict=True)
    return [held(parts[part], box) for box, part in pieces]


def held(value: torch.Tensor, box: Sequence[tuple[int, int]]) -> torch.Tensor:
    """What a device holds; a number stays a number, which a copy of it would not be."""
    if not box:
        return value
    return within(value, box).clone(memory_format=torch.contiguous_format)


def within(value: torch.Tensor, box: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The part of a tensor in a box."""
    for dim, (start, extent) in enumerate(box):
        value = value.narrow(dim, start, extent)
    return value


def parts_of(value: torch.Tensor, reduction: str, count: int) -> list[torch.Tensor]:
    """Different tensors that reduce to ``value``."""
    if count == 1:
        return [value]
    if reduction == "sum":
        return summands(value, count)
    if reduction == "prod":
        halves = (
            torch.full_like(value, 0.5) if value.is_floating_point() else torch.ones_like(value)
        )
        rest = [torch.ones_like(value) for _ in range(count - 2)]
        return [value / halves if value.is_floating_point() else value, halves, *rest]
    owner = torch.arange(value.numel()).reshape(value.shape) % count
    return [torch.where(owner == part, value, dominated(value, reduction)) for part in range(count)]


def summands(value: torch.Tensor, count: int) -> list[torch.Tensor]:
    """0.6 of a number, 0.4 of it in halves, and a wave of it from one part to the next.

    Equal or proportional parts would hide what is counted twice or compared too early.
    """
    none = torch.zeros_like(value)
    if value.dtype == torch.bool:
        return [value] + [none] * (count - 1)
    finite = value.isfinite()
    wave = 1.5 * torch.sin(3.0 * torch.arange(value.numel())).reshape(value.shape)
    left, parts = value, []
    for part in range(count - 1):
        taken = (left * ((0.5 if part else 0.6) + wave)).to(value.dtype)
        parts.append(torch.where(finite, taken, none if part else value))
        left = torch.where(finite, left - taken, none)
    return [*parts, left]


def dominated(value: torch.Tensor, reduction: str) -> torch.Tensor:
    """What the others hold beside the one that has the maximum, minimum, ``any`` or ``all``."""
    if value.dtype == torch.bool:
        return torch.full_like(value, reduction in ("min", "all"))
    below = reduction == "max"
    if value.is_floating_point():
        return value - 1 if below else value + 1
    limits = torch.iinfo(value.dtype)
    return torch.full_like(value, limits.min if below else limits.max)


REDUCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "any": torch.logical_or,
    "all": torch.logical_and,
}


def joined(shards: Sequence[torch.Tensor], layout: Layout, like: torch.Tensor) -> torch.Tensor:
    """The value that these shards hold together."""
    result = torch.empty_like(like, memory_format=torch.contiguous_format)
    by_box: dict[Any, torch.Tensor] = {}
    for shard, box in zip(shards, layout["boxes"], strict=True):
        known = by_box.get(box)
        reduce = REDUCTIONS.get(layout["reduction"])
        by_box[box] = shard if known is None or reduce is None else reduce(known, shard)
    for box, shard in by_box.items():
        within(result, box).copy_(shard)
    return result


def closeness(tensors: Sequence[torch.Tensor]) -> float:
    """How close the result of these operands is, of its largest number."""
    smooth = [t.dtype for t in tensors if t.is_floating_point() or t.is_complex()]
    return max((CLOSE.get(dtype, CLOSE_BY_DEFAULT) for dtype in smooth), default=CLOSE_BY_DEFAULT)


def difference(found: torch.Tensor, wanted: torch.Tensor, close: float) -> str:
    """How two tensors differ; empty where they do not."""
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return "" if torch.equal(found, wanted) else "other whole numbers"
    finite = wanted[wanted.isfinite()].abs()
    scale = max(float(finite.max()) if finite.numel() else 0.0, SMALL)
    near = torch.isclose(found, wanted, rtol=close, atol=close * scale, equal_nan=True)
    if near.all():
        return ""
    at = tuple((~near).nonzero()[0].tolist())
    return f"{found[at].item()!r}, not {wanted[at].item()!r}, at {list(at)}"


# ---- one op --------------------------------------------------------------------------------------


class Node:
    """A recorded op with the values of its operands and results."""

    def __init__(
        self, recording: "_C.Recording", index: int, values: Sequence[torch.Tensor | None]
    ):
        self.recording, self.index = recording, index
        row = recording.nodes[index]
        self.op, self.text, self.has_rule, self.hash = (
            row["op"],
            row["text"],
            row["has_rule"],
            row["hash"],
        )
        self.operands = [values[v] for v in row["inputs"]]
        self.results = [None if v is None else values[v] for v in row["outputs"]]

    def said_of(self, trial: "_C.Trial") -> str:
        """How the results of a trial differ from the op's; empty where they do not."""
        shards = [shards_of(v, at) for v, at in zip(self.operands, trial.inputs, strict=True)]
        made = trial.run(shards)
        wanted = [result for result in self.results if result is not None]
        for number, (found, at, whole) in enumerate(zip(made, trial.outputs, wanted, strict=True)):
            said = difference(joined(found, at, whole), whole, closeness([whole, *self.operands]))
            if said and not self.op.startswith(UNWRITTEN):
                return f"result {number}: {said}"
        return ""

    def try_rule(
        self, *shape: int, seen: Callable[["_C.Trial"], None] = lambda trial: None
    ) -> Findings:
        """Every way that the rule offers on a mesh of this shape.

        Args:
            shape: of the mesh.
            seen: is told of every trial.
        """
        findings = Findings()
        try:
            trials = self.recording.trials(self.index, mesh_of(*shape))
        except Exception as error:
            findings.wrong.append(f"{self.text}: {type(error).__name__}: {error}")
            return findings
        for trial in trials:
            findings.tried += 1
            seen(trial)
            try:
                said = self.said_of(trial)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            if said:
                findings.wrong.append(f"{self.op}: {ways(trial)}: {said}")
        return findings

    def missed(self, axis: int) -> dict[str, int]:
        """Layouts on so many devices that give the result and that the rule does not offer."""
        mesh = mesh_of(axis)
        offered = {
            tuple(at["text"] for at in t.inputs) for t in self.recording.trials(self.index, mesh)
        }
        found: dict[str, int] = {}
        for inputs in itertools.islice(self.input_guesses(axis), MOST_GUESSES):
            for outputs in self.output_guesses(axis):
                trial = self.recording.guess(self.index, mesh, inputs, outputs)
                layouts = tuple(at["text"] for at in trial.inputs)
                if layouts in offered or layouts in found:
                    break
                if self.holds(trial):
                    found[ways(trial)] = self.bytes_of(inputs, axis)
                    offered.add(layouts)
        return found

    def holds(self, trial: "_C.Trial") -> bool:
        try:
            return not self.said_of(trial)
        except Exception:  # what cannot run so is no layout that a rule could offer
            return False

    def input_guesses(self, axis: int) -> Iterator[tuple[int, ...]]:
        """How operands may lie: something is cut or partial, and every shard has elements."""
        each = [
            [WHOLE, *cut_dims(v, axis), *([SUM] if v.is_floating_point() else [])]
            for v in self.operands
        ]
        return (ways for ways in itertools.product(*each) if any(way != WHOLE for way in ways))

    def output_guesses(self, axis: int) -> Iterator[tuple[int, ...]]:
        """How results may lie: all cut on some dim, all whole, or all partial."""
        each = [[WHOLE] if v is None else [*cut_dims(v, axis), SUM, WHOLE] for v in self.results]
        return itertools.islice(itertools.product(*each), 64)

    def bytes_of(self, inputs: Sequence[int], axis: int) -> int:
        """What a device receives so that it has whole what lies so."""
        sizes = [
            v.numel() * v.element_size()
            for v, way in zip(self.operands, inputs, strict=True)
            if way != WHOLE
        ]
        return sum(sizes) * (axis - 1) // axis


def cut_dims(value: torch.Tensor, axis: int) -> list[int]:
    return [dim for dim, size in enumerate(value.shape) if size >= axis]


def ways(trial: "_C.Trial") -> str:
    """``"f32[4@x, 6], f32[6, 5] -> f32[4@x, 5]"``."""
    operands, results = (
        ", ".join(at["text"] for at in side) for side in (trial.inputs, trial.outputs)
    )
    return f"{operands} -> {results}"
