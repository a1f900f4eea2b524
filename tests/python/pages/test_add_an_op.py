# SPDX-License-Identifier: Apache-2.0
"""docs/add_an_op.md works: its row, put into a copy of the table, makes its text test pass."""

import re

import page_files
import pytest


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs/add_an_op.md").read_text()


@pytest.fixture(scope="module")
def table(root):
    return (root / "csrc/rules/table.cpp").read_text()


def rows(page, head):
    """The cells of the rows of the table whose first column has this head."""
    (found,) = re.findall(re.escape(f"| {head} |") + r".*\n\|[-|]+\n((?:\|.*\n)+)", page)
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in found.splitlines()]


def test_the_row_and_the_text_test_of_the_page_fit(page, root, spmdx_opt, tmp_path):
    table, golden = paths = page_files.put_in(page, root, tmp_path)
    assert len(paths) == page_files.price(root, "docs/add_an_op.md") == 2
    assert table == "csrc/rules/table.cpp"
    graph, expected = (tmp_path / golden).read_text().split("// -----\n")
    known = page_files.run(spmdx_opt, "--rule", "-", text=graph)
    assert "fallback" in known, "the page's op has a row: choose another"
    tool = page_files.build(tmp_path, root, spmdx_opt, *page_files.TOOL)
    assert page_files.run(tool, "--rule", "-", text=graph) == expected


def test_the_page_has_every_mark_and_wildcard(page, root):
    source = (root / "csrc/rules/build/letters.cpp").read_text()
    marks = set(re.findall(r"case '(.)':", source))
    assert marks == set("!+^~.")
    shown = {cells[0].split("`")[1].lstrip("mk") for cells in rows(page, "written")}
    assert shown == marks | {"", "*", "_"}


def test_the_page_has_every_linearity(page, root, table):
    (body,) = re.findall(
        r"enum class Linearity.*?\{(.*?)\}", (root / "csrc/rules/rule/rule.h").read_text(), re.S
    )
    names = {name: f"Linearity::{name}" for name in re.findall(r"^  (\w+),? *//", body, re.M)}
    names |= {name: short for short, name in re.findall(r"(k\w+) = Linearity::(\w+)", table)}
    names["none"] = "none"
    assert len(names) == 5
    assert {cells[0].strip("`") for cells in rows(page, "`linearity`")} == set(names.values())


def test_the_page_has_every_family_of_the_table(page, root, table):
    for_many = [cells[0].strip("`") for cells in rows(page, "family")]
    for_few = [(cells[1], cells[2].strip("`")) for cells in rows(page, "they are about")]
    told = for_many + [name for names, _ in for_few for name in re.findall(r"\w+", names)]
    assert len(told) == len(set(told))
    assert set(told) == set(re.findall(r"\.family = (\w+)", table))
    for names, header in for_few:
        text = (root / header).read_text()
        assert [n for n in re.findall(r"\w+", names) if f"OpRule {n}(" not in text] == [], header
