# SPDX-License-Identifier: Apache-2.0
"""docs/add_an_op.md works: its row, put into a copy of the table, makes its text test pass."""

import re
import subprocess

import pytest

BEFORE = '    {.op = "aten.linalg_solve_triangular"'


@pytest.fixture(scope="module")
def page(request):
    root = request.config.rootpath
    return (root / "docs" / "add_an_op.md").read_text()


def block(page, language):
    found = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"expected one {language} block, found {len(found)}"
    return found[0]


def rule_of(tool, graph):
    done = subprocess.run([tool, "--rule", "-"], input=graph, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_row_and_the_text_test_of_the_page_fit(page, root, spmdx_opt, tmp_path):
    graph, expected = block(page, "text").split("// -----\n")
    table = (root / "csrc/rules/table.cpp").read_text()
    assert table.count(BEFORE) == 1
    assert "fallback" in rule_of(spmdx_opt, graph), "the page's op has a row: choose another"

    changed, tool = tmp_path / "table.cpp", tmp_path / "spmdx-opt"
    changed.write_text(table.replace(BEFORE, block(page, "cpp") + BEFORE))
    sources = [changed, root / "csrc/tools/spmdx_opt.cpp", spmdx_opt.parent / "libspmdx_core.a"]
    subprocess.run(
        ["g++", "-std=c++20", "-O0", f"-I{root / 'csrc'}", *sources, "-pthread", "-o", tool],
        check=True,
        timeout=300,
    )
    assert rule_of(tool, graph) == expected
