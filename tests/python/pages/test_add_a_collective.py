# SPDX-License-Identifier: Apache-2.0
"""docs/add_a_collective.md works: its four files make a collective that plans use."""

import re
import shlex

import page_files
import pytest


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs/add_a_collective.md").read_text()


@pytest.fixture(scope="module")
def built(page, root, tmp_path_factory):
    """The folder of the page's files, and their paths."""
    folder = tmp_path_factory.mktemp("collective")
    return folder, page_files.put_in(page, root, folder)


@pytest.fixture(scope="module")
def tool(built, root, spmdx_opt):
    return page_files.build(built[0], root, spmdx_opt, *page_files.TOOL)


def test_a_collective_is_four_files(built, root):
    _, paths = built
    assert len(paths) == page_files.price(root, "docs/add_a_collective.md") == 4, paths


def test_the_planner_uses_it_where_it_is_quicker(page, tool, spmdx_opt):
    (shown,) = page_files.marked(page, "reshard")
    asked, expected = shown.split("// -----\n")
    words = ["--reshard", *shlex.split(asked)]
    assert page_files.run(tool, *words) == expected
    assert "gather_reduce" not in page_files.run(spmdx_opt, *words)


def test_a_plan_with_it_is_verified(page, tool):
    (shown,) = page_files.marked(page, "compile")
    graph, expected = shown.split("// -----\n")
    assert page_files.run(tool, "--compile", "--verify", "-", text=graph) == expected


def test_its_moves_are_what_they_say(built, root, spmdx_opt):
    tests = page_files.build(
        built[0],
        root,
        spmdx_opt,
        "tests/core/main.cpp",
        "tests/core/sharding/reshard_checks.cpp",
        "tests/core/sharding/test_reshard.cpp",
    )
    assert "0 failed" in page_files.run(tests)


def crossings(folder):
    """{name: how often its data crosses the wire} of the table of collectives."""
    text = (folder / "csrc/sharding/collectives.cpp").read_text()
    fields = re.findall(r'\.name = "(\w+)"([^}]*)\}', text)
    return {name: int((re.findall(r"crossings = (\d)", rest) or [0])[0]) for name, rest in fields}


def listed(folder):
    """The rows of the table for users: name and bytes."""
    text = (folder / "docs/sharding.md").read_text()
    (found,) = re.findall(r"\| collective \| bytes .*\n\|[-|]+\n((?:\|.*\n)+)", text)
    return dict(line.strip("| ").split(" | ") for line in found.splitlines())


def test_what_the_page_for_users_says_of_collectives_is_what_the_table_says(root):
    known, told = crossings(root), listed(root)
    assert len(told) >= 5
    for name, text in told.items():
        assert known[name] == (2 if text.startswith("2 ·") else 1), name


def test_no_other_page_repeats_the_list(root):
    names = [name for name, often in crossings(root).items() if often]
    pages = [*(root / "docs").glob("*.md"), *(root / "csrc").rglob("*.h")]
    pages += [root / "python/spmdx/_report/report.py"]
    here = [root / "docs/sharding.md", root / "csrc/sharding/collectives.h"]
    full = [p for p in pages if p not in here and all(n in p.read_text() for n in names)]
    assert full == []
