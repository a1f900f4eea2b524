# SPDX-License-Identifier: Apache-2.0
"""Names of ops in the sources: PyTorch has each of them, and tables of them are alphabetical."""

import pathlib
import re

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "csrc").rglob("*.cpp"))
NAME = re.compile(r'"(aten(?:\.|::)\w+(?:\.\w+)?)"')
# An initializer whose first text names an op.
TABLE = re.compile(r'= \{\s*\{?(?:\.op = )?"aten[.:].*?\};', re.DOTALL)
ROW = re.compile(r'\{\s*(?:\.op = )?"(aten[^"]+)"')
# Sources that say what names begin with, of a kind of op each.
BEGINNINGS = {"register.cpp", "taps.cpp"}


def known_names() -> set[str]:
    """Every op under its full name and its base name, as "aten.add.Tensor" and "aten.add"."""
    names = set()
    for schema in torch._C._jit_get_all_schemas():
        base = schema.name.replace("::", ".")
        names |= {base, f"{base}.{schema.overload_name}" if schema.overload_name else base}
    return names


KNOWN = known_names()


def unknown(text: str, beginnings: bool = False) -> list[str]:
    """The names in a source that no op has, nor begins with where that is enough."""
    found = {name.replace("::", ".") for name in NAME.findall(text)} - KNOWN
    if beginnings:
        found = {name for name in found if not any(op.startswith(name) for op in KNOWN)}
    return sorted(found)


def tables(text: str) -> list[list[str]]:
    """For every table of a source the ops that its rows begin with, or that it lists, in order."""
    found = []
    for table in TABLE.findall(text):
        rows = ROW.findall(table)
        found.append(rows if len(rows) > 1 else re.findall(r'"(aten[^"]+)"', table))
    return found


def out_of_order(ops: list[str]) -> list[tuple[str, str]]:
    return [(a, b) for a, b in zip(ops, ops[1:], strict=False) if a >= b]


def test_what_is_wrong_is_found():
    text = 'constexpr R kRows[] = {{"aten.mul", "aten.neg"}, {"aten.add", x<0>}, {"aten.no_op"}};'
    assert tables(text) == [["aten.mul", "aten.add", "aten.no_op"]]
    assert tables('names = {"aten.mul", "aten.add"};') == [["aten.mul", "aten.add"]]
    assert unknown(text) == ["aten.no_op"]
    assert unknown('"aten::add" "aten.upsample_near"') == ["aten.upsample_near"]
    assert unknown('"aten.upsample_near"', beginnings=True) == []
    assert out_of_order(["aten.add", "aten.mul", "aten.abs"]) == [("aten.mul", "aten.abs")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_named_ops_exist(path):
    assert unknown(path.read_text(), path.name in BEGINNINGS) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_tables_are_alphabetical(path):
    for ops in tables(path.read_text()):
        assert out_of_order(ops) == []


def test_the_tables_are_seen():
    table = tables((ROOT / "csrc/rules/table.cpp").read_text())
    assert max(len(ops) for ops in table) > 250 and len(table) > 5
