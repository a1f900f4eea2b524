# SPDX-License-Identifier: Apache-2.0
"""Trials: all that the rule of a recorded op offers, run on shards and held against the whole."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import spmdx._C as _C
from spmdx._rules.closeness import closeness, difference, leeway_of
from spmdx._rules.shards import joined, shards_of

WHOLE, SUM = -1, -2  # how an operand lies in a guess; else the dim that is cut
MESHES = ((2,), (3,), (4,), (2, 2))  # shapes that rules are tried on
MOST_GUESSES = 600  # for one op over one axis
UNWRITTEN = ("aten.empty", "aten.new_empty")  # memory nobody wrote has no value
PARTLY_WRITTEN = ("aten._ctc_loss",)  # its table has rows of all lengths, filled to each target's


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


@contextlib.contextmanager
def unwritten_is_nan() -> Iterator[None]:
    """Numbers that kernels leave as memory was are NaN inside."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # fills new memory, too
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


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
        if self.op.startswith(UNWRITTEN):
            return ""
        wanted = [result for result in self.results if result is not None]
        for number, (found, at, whole) in enumerate(zip(made, trial.outputs, wanted, strict=True)):
            close = closeness([whole, *self.operands])
            leeway = functools.partial(self.leeway, number)
            said = difference(joined(found, at, whole), whole, close, leeway)
            if said:
                return f"result {number}: {said}"
        return ""

    def leeway(self, number: int) -> torch.Tensor:
        """What each number of a result may differ by, the op being what it is."""
        whole = self.recording.guess(
            self.index, mesh_of(2), [WHOLE] * len(self.operands), [WHOLE] * len(self.results)
        )

        def run(operands: list[torch.Tensor]) -> torch.Tensor:
            return whole.run([[operand] for operand in operands])[number][0]

        if self.op not in PARTLY_WRITTEN:
            return leeway_of(run, self.operands)
        with unwritten_is_nan():
            written = ~run(self.operands).isnan()
        return torch.where(written, 0.0, torch.inf)

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
                if layouts in offered:
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
