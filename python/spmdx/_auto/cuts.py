# SPDX-License-Identifier: Apache-2.0
"""What the axis "model" cuts: one dim of parameters, or none; parts that are alike, alike."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from spmdx._auto.alike import Kind, kinds_of, pattern_of
from spmdx._auto.strategy import Strategy
from spmdx._modules.marking import specs_by_pattern
from spmdx._pipelines.held import tensors_of
from spmdx._pipelines.units import Units

SEQUENCE = "the sequence"  # dim 1 of a batch, beside the parameters


@dataclass(frozen=True)
class Choice:
    """Something that is cut along one dim or left whole.

    Attributes:
        names: of the parameters that it is, all alike; or ``(SEQUENCE,)``.
        shape: of each.
        followers: by dim that is cut, names of vectors beside them that are cut with them.
        kind: of the units that hold them; None beside all units.
        module: that holds it, by its name within a unit.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    followers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    kind: int | None = None
    module: str = ""

    def options(self, n: int) -> list[int | None]:
        """The dims that ``n`` devices can cut evenly, after none at all."""
        return [None, *(d for d, size in enumerate(self.shape) if size and size % n == 0)]


def choices_of(
    model: torch.nn.Module, units: Units, batch: Sequence[torch.Size]
) -> tuple[list[Choice], dict[str, Kind]]:
    """What there is to choose, and by name of a unit those that are alike with it.

    Args:
        model: whose parameters are cut.
        units: its parts.
        batch: shapes of the tensors of a batch. Where one has a second dim, that may be cut.
    """
    kinds = kinds_of(units.whole)
    own = tensors_of(model)
    learned = {n: t for n, t in own.items() if isinstance(t, torch.nn.Parameter)}
    choices: list[Choice] = []
    seen: set[str] = set()
    for kind in {id(k): k for k in kinds.values()}.values():
        for alike in _alike_within(model.get_submodule(kind.units[0]), kind):
            names = tuple(n for name in alike for n in kind.full_names(name) if n in learned)
            seen.update(names)
            if names and kind.parameters[alike[0]].dim() > 1:
                choices.append(_choice(names, kind, alike[0], learned))
    for name, parameter in learned.items():
        if name not in seen and parameter.dim() > 1:
            choices.append(Choice((name,), tuple(parameter.shape)))
    lengths = {shape[1] for shape in batch if len(shape) > 1}
    if len(lengths) == 1:
        choices.append(Choice((SEQUENCE,), (0, *lengths)))
    return choices, kinds


def _alike_within(unit: torch.nn.Module, kind: Kind) -> list[list[str]]:
    """Names of a unit's parameters: those of layers and directions of a recurrent net in one."""
    found: dict[tuple, list[str]] = {}
    for name, parameter in kind.parameters.items():
        prefix, _, leaf = name.rpartition(".")
        is_recurrent = isinstance(unit.get_submodule(prefix), torch.nn.RNNBase)
        stem = re.sub(r"_l\d+(_reverse)?$", "", leaf) if is_recurrent else leaf
        found.setdefault((prefix, stem, parameter.shape), []).append(name)
    return list(found.values())


def _choice(
    names: tuple[str, ...], kind: Kind, name: str, learned: Mapping[str, torch.Tensor]
) -> Choice:
    shape = tuple(kind.parameters[name].shape)
    prefix, _, leaf = name.rpartition(".")
    rows: list[str] = []
    if leaf.endswith("weight"):
        beside = f"{prefix}." if prefix else ""
        bias = beside + leaf.removesuffix("weight") + "bias"
        held = kind.parameters.get(bias)
        if held is not None and tuple(held.shape) == shape[:1]:
            rows = [n for n in kind.full_names(bias) if n in learned]
    followers = {0: tuple(rows)} if rows else {}
    return Choice(names, shape, followers, id(kind), prefix)


def starts_of(
    choices: Sequence[Choice], options: Sequence[Sequence[int | None]], depths: Mapping[int, dict]
) -> list[list[int]]:
    """From where to look for cuts, as places in the options: nothing cut; and as Megatron-LM cuts,

    results of the first matrix on a way and what the next one reads, in turn; each with and without
    a cut of the sequence.
    """

    def in_turn(choice: Choice, dims: Sequence[int | None]) -> int:
        depth = depths.get(choice.kind or 0, {}).get(choice.module, 1 if choice.module else 0)
        wanted = depth % 2 if len(choice.shape) != 3 else 0  # of three dims, experts are the first
        return dims.index(wanted) if wanted in dims else len(dims) - 1

    starts = []
    for is_cut in (False, True):
        for cuts_sequence in (False, True):
            start = []
            for choice, dims in zip(choices, options, strict=True):
                if choice.names == (SEQUENCE,):
                    start.append(len(dims) - 1 if cuts_sequence else 0)
                else:
                    start.append(in_turn(choice, dims) if is_cut else 0)
            starts.append(start)
    return starts


@dataclass(frozen=True)
class Cuts:
    """A dim or none for each choice."""

    choices: tuple[Choice, ...]
    dims: tuple[int | None, ...]
    context = 1  # devices of an axis that a search does not have

    def specs(self) -> dict[str, tuple[str | None, ...]]:
        """By name of a parameter that is cut, its partition spec."""
        specs: dict[str, tuple[str | None, ...]] = {}
        for choice, dim in zip(self.choices, self.dims, strict=True):
            if dim is None or choice.names == (SEQUENCE,):
                continue
            spec = tuple("model" if d == dim else None for d in range(len(choice.shape)))
            specs |= dict.fromkeys(choice.names, spec)
            specs |= dict.fromkeys(choice.followers.get(dim, ()), ("model",))
        return specs

    def plan(self, among: Sequence[str]) -> dict[str, tuple[str | None, ...]]:
        """The same by patterns, for :func:`spmdx.nn.shard_module`; ``among`` are all names."""
        specs = self.specs()
        plan: dict[str, tuple[str | None, ...]] = {}
        for choice in self.choices:
            for names in (choice.names, *choice.followers.values()):
                if names[0] in specs:
                    plan |= dict.fromkeys(pattern_of(names, among), specs[names[0]])
        return plan

    @property
    def cuts_sequence(self) -> bool:
        return any(
            choice.names == (SEQUENCE,) and dim is not None
            for choice, dim in zip(self.choices, self.dims, strict=True)
        )


class Given:
    """What "model" cuts by a strategy that somebody gave; read as :class:`Cuts` is.

    Attributes:
        dims: what tells these cuts from others.
        cuts_sequence: whether "model" cuts dim 1 of a batch.
        context: devices of the axis "context", which cuts it as well.
    """

    def __init__(self, strategy: Strategy, model: torch.nn.Module):
        self._plan = dict(strategy.plan or {})
        self._specs = specs_by_pattern(self._plan, tensors_of(model)) if self._plan else {}
        self.dims = tuple(sorted(self._specs.items(), key=repr))
        self.cuts_sequence, self.context = strategy.sequence, strategy.context

    def specs(self) -> dict[str, tuple]:
        """By name of a parameter that is cut, its partition spec."""
        return dict(self._specs)

    def plan(self, among: Sequence[str]) -> dict[str, tuple]:
        """By pattern, as it was given."""
        return self._plan
