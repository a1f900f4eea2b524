# SPDX-License-Identifier: Apache-2.0
"""Which parts of a model are alike: they are planned once, and cut alike."""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Their text says what they are.
SIMPLE = int, float, str, bool, tuple, list, dict, type(None), torch.dtype, torch.device


def kind_of(name: str, unit: torch.nn.Module) -> tuple:
    """What two units have in common that compute alike: modules, their settings, and shapes.

    A number that is the unit's own place in its list, as that of a layer, is no difference.
    """
    places = [int(part) for part in name.split(".") if part.isdigit()]
    place = places[-1] if places else None
    found: list[Any] = []
    for inner, module in unit.named_modules():
        found.append((inner, type(module), module.training, *_settings(module, place)))
        own = [*module._parameters.items(), *module._buffers.items()]
        found += [(n, t.shape, t.dtype, t.requires_grad) for n, t in own if t is not None]
    return tuple(found)


def _settings(module: torch.nn.Module, place: int | None) -> list[tuple]:
    settings: list[tuple] = []
    for key, value in vars(module).items():
        if key.startswith("_") or key == "training":
            continue
        if isinstance(value, SIMPLE):
            is_place = type(value) is int and value == place
            settings.append((key, "its place" if is_place else repr(value)))
        else:  # what several share, as a configuration, or a function
            settings.append((key, id(value)))
    return settings


@dataclass
class Kind:
    """Units that are alike.

    Attributes:
        units: their names.
        parameters: of the first one, by name within it.
    """

    units: list[str]
    parameters: dict[str, torch.nn.Parameter]

    def full_names(self, parameter: str) -> list[str]:
        return [f"{unit}.{parameter}" for unit in self.units]


def kinds_of(whole: dict[str, torch.nn.Module]) -> dict[str, Kind]:
    """By name of a unit, those that are alike with it."""
    by_key: dict[tuple, Kind] = {}
    found: dict[str, Kind] = {}
    for name, unit in whole.items():
        key = kind_of(name, unit)
        kind = by_key.setdefault(key, Kind([], dict(unit.named_parameters())))
        kind.units.append(name)
        found[name] = kind
    return found


def pattern_of(names: Sequence[str], among: Sequence[str]) -> list[str]:
    """Patterns as of the shell that match these names, and no other ones: one if there can be."""
    if len(names) > 1:
        pattern = re.sub(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", "*", names[0])
        if set(fnmatch.filter(among, pattern)) == set(names):
            return [pattern]
    return list(names)
