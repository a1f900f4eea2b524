# SPDX-License-Identifier: Apache-2.0
"""The floor of rules: slices in rooms, no ring of units, and one table that includes them all."""

import pathlib
import re

import pytest

CSRC = pathlib.Path(__file__).resolve().parent.parent / "csrc"
RULES = CSRC / "rules"
ROOMS = ["build", "tensors", "layers", "stencils"]
MOST_UNITS, MOST_LINES = 15, 350
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cpp"))


def unit(path):
    """x.h and x.cpp are one."""
    return str(pathlib.Path(path).with_suffix(""))


def edges(folder):
    """Which units each unit of a folder includes."""
    found = {}
    for path in sources(folder):
        own = unit(path.relative_to(CSRC))
        targets = {unit(target) for target in INCLUDE.findall(path.read_text())}
        found.setdefault(own, set()).update(targets - {own})
    return found


def ring(graph):
    """Units in or above a ring: what is left when all that leads nowhere is taken away."""
    left = {name: targets & graph.keys() for name, targets in graph.items()}
    while loose := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in loose:
            del left[name]
    return sorted(left)


def test_a_ring_is_found():
    assert ring({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["a", "b", "c"]
    assert ring({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("floor", ["graph", "rules"])
def test_no_ring_of_units(floor):
    assert ring(edges(CSRC / floor)) == []


@pytest.mark.parametrize("folder", [RULES, *(RULES / room for room in ROOMS)], ids=lambda p: p.name)
def test_a_room_is_small(folder):
    assert len({p.stem for p in folder.iterdir() if p.is_file()}) <= MOST_UNITS


@pytest.mark.parametrize("path", sources(RULES), ids=lambda p: str(p.relative_to(RULES)))
def test_files_are_short(path):
    if path.name != "table.cpp":
        assert len(path.read_text().splitlines()) <= MOST_LINES


def test_what_slices_are_built_of_knows_no_slice():
    slices = ("rules/tensors/", "rules/layers/", "rules/stencils/", "rules/table")
    for path in sources(RULES / "build"):
        assert not [t for t in INCLUDE.findall(path.read_text()) if t.startswith(slices)]


def test_passes_and_runtime_know_no_op_of_pytorch_by_name():
    compared = re.compile(r'[=!]= "aten\.|(?:starts|ends)_with\("aten|contains\("aten|\{"aten')
    found = [p for floor in ("passes", "runtime") for p in sources(CSRC / floor)]
    assert [str(p) for p in found if compared.search(p.read_text())] == []
