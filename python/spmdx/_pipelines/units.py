# SPDX-License-Identifier: Apache-2.0
"""Units: the modules of a model that a stage of a pipeline holds whole."""

from collections import Counter
from dataclasses import dataclass, field

from torch import nn

LISTS = nn.ModuleList, nn.ModuleDict, nn.Sequential


@dataclass
class Units:
    """The modules of a model by name: those that stay whole, and those that hold them."""

    whole: dict[str, nn.Module] = field(default_factory=dict)
    opened: dict[str, nn.Module] = field(default_factory=dict)


def units_of(model: nn.Module, least: int) -> Units:
    """The units of a model: blocks in lists, and modules without lists beside them.

    A module that holds a list of modules is opened. What a list holds several of, as blocks, stays
    whole, whatever lists are within; unless there are fewer than ``least`` units.

    Args:
        model: any module; it is no unit itself.
        least: how many units are wanted.

    Returns:
        Units in the order of registration, a shared module once.
    """
    units = _units(model, thorough=False)
    return units if len(units.whole) >= least else _units(model, thorough=True)


def _units(model: nn.Module, thorough: bool) -> Units:
    found = Units()
    _open("", model, thorough, found, set())
    return found


def _open(prefix: str, module: nn.Module, thorough: bool, found: Units, seen: set) -> None:
    found.opened[prefix] = module
    listed = isinstance(module, LISTS)
    kinds = Counter(type(child) for child in module.children())
    for name, child in module.named_children():
        if child in seen:
            continue
        seen.add(child)
        full = f"{prefix}.{name}" if prefix else name
        block = listed and kinds[type(child)] > 1 and not thorough
        if _is_opened(child, block):
            _open(full, child, thorough, found, seen)
        else:
            found.whole[full] = child


def _is_opened(module: nn.Module, block: bool) -> bool:
    if isinstance(module, nn.ModuleList | nn.ModuleDict):  # which nobody calls
        return True
    if isinstance(module, nn.Sequential) and block:  # of blocks, or itself one of layers
        return any(True for child in module.children() for _ in child.children())
    return not block and any(isinstance(m, LISTS) and len(m) > 1 for m in module.modules())
