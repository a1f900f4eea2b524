# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a checkpoint make a tensor of a model: renamed, joined, or converted."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    Chunk,
    Concatenate,
    MergeModulelist,
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
)

from spmdx._integrations.pretrained.parts import (
    Cut,
    Joined,
    Part,
    Results,
    Stacked,
    Whole,
    everything,
)

Found = dict[str, Part]


def parts_of(model: Any, stored: Mapping[str, Part]) -> tuple[Found, list[str]]:
    """By the name of a tensor of the model, what it is read from; and names that fit nothing.

    Args:
        model: of transformers; its shapes count, not its values.
        stored: the tensors of the files, by name.
    """
    transforms = get_model_conversion_mapping(model)
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    of_pattern = {p: converter for converter in converters for p in converter.source_patterns}
    own, prefix = model.state_dict(), model.base_model_prefix
    found: Found = {}
    unexpected: list[str] = []
    collected: dict[str, tuple[Any, dict[str, list[Part]]]] = {}
    for name in sorted(stored, key=dot_natural_key):
        new, pattern = rename_source_key(name, renamings, converters, prefix, own)
        if new not in own and name in own:
            new, pattern = rename_source_key(name, [], [], prefix, own)
        if new not in own:
            unexpected.append(name)
        elif pattern is None:
            found[new] = stored[name]
        else:
            entry = collected.setdefault(new, (of_pattern[pattern], {}))
            entry[1].setdefault(pattern, []).append(stored[name])
    for first, (converter, sources) in collected.items():
        found |= _converted(model, first, converter, sources)
    model._weight_conversions = [t for t in transforms if t.was_used()]
    return found, unexpected


def _converted(model: Any, first: str, converter: Any, sources: dict[str, list[Part]]) -> Found:
    """The results of a converter, read in boxes where its operations only join and cut."""
    made: dict[str, Any] = dict(sources)
    targets = converter.target_patterns
    for operation in converter.operations:
        if type(operation) is MergeModulelist:
            count = len(made)
            name_of = operation.get_target_pattern
            made = {name_of(count, p, targets): Stacked(v, operation.dim) for p, v in made.items()}
        elif type(operation) is Concatenate:
            listed = [made[p] for p in converter.source_patterns if p in made]
            flat = [one for each in listed for one in (each if isinstance(each, list) else [each])]
            made = {operation.get_target_pattern(targets): Joined(flat, operation.dim)}
        elif type(operation) is Chunk and len(made) == 1:
            made = _chunks(operation, next(iter(made.values())), targets, model.config)
        else:
            return _as_a_whole(model, first, converter, sources)
    if any(isinstance(each, list) for each in made.values()):
        return _as_a_whole(model, first, converter, sources)
    pattern = next((p for p in made if p in first), None)
    if pattern is None:
        return _as_a_whole(model, first, converter, sources)
    before, _, after = first.partition(pattern)
    return {before + name + after: part for name, part in made.items()}


def _chunks(operation: Any, held: Any, targets: list[str], config: Any) -> dict[str, Part]:
    part = held[0] if isinstance(held, list) else held
    names = operation.get_target_patterns(targets, config=config)
    whole = part.shape[operation.dim]
    size = -(-whole // len(names))
    begins = [min(whole, n * size) for n in range(len(names) + 1)]
    return {
        name: Cut(part, operation.dim, begin, end - begin)
        for name, begin, end in zip(names, begins, begins[1:], strict=False)
    }


def _as_a_whole(model: Any, first: str, converter: Any, sources: dict[str, list[Part]]) -> Found:
    """What the library's own conversion makes: first of shapes alone, later of what is read."""

    def run(tensors: dict[str, list[torch.Tensor]]) -> dict[str, torch.Tensor]:
        own = copy.deepcopy(converter)
        for pattern, listed in tensors.items():
            own.collected_tensors[pattern].extend(listed)
        given = own.convert(first, model=model, config=model.config)
        return {n: t[0] if isinstance(t, list) else t for n, t in given.items()}

    def make() -> dict[str, torch.Tensor]:
        return run({p: [everything(part) for part in parts] for p, parts in sources.items()})

    shapes = {
        p: [torch.empty(s.shape, dtype=s.dtype, device="meta") for s in parts]
        for p, parts in sources.items()
    }
    results = Results(make)
    return {name: Whole(results, name, like) for name, like in run(shapes).items()}
