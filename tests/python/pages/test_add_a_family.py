# SPDX-License-Identifier: Apache-2.0
"""docs/add_a_family.md works: its header, its source and its row make its text test pass."""

import re
import subprocess

import pytest

BEFORE = '    {.op = "aten.repeat"'
INCLUDE = '#include "rules/tensors/slots.h"\n'


@pytest.fixture(scope="module")
def page(request):
    root = request.config.rootpath
    return (root / "docs" / "add_a_family.md").read_text()


def block(page, language):
    found = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"expected one {language} block, found {len(found)}"
    return found[0]


def rule_of(tool, graph):
    done = subprocess.run([tool, "--rule", "-"], input=graph, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_three_files_of_the_page_make_a_rule(page, root, spmdx_opt, tmp_path):
    graph, expected = block(page, "text").split("// -----\n")
    assert "fallback" in rule_of(spmdx_opt, graph), "the page's op has a row: choose another"

    table = (root / "csrc/rules/table.cpp").read_text()
    assert table.count(BEFORE) == 1 and table.count(INCLUDE) == 1
    table = table.replace(BEFORE, block(page, "row") + BEFORE)
    table = table.replace(INCLUDE, '#include "rules/tensors/slices_apart.h"\n' + INCLUDE)
    room = tmp_path / "rules" / "tensors"
    room.mkdir(parents=True)
    (room / "slices_apart.h").write_text(block(page, "h"))
    (room / "slices_apart.cpp").write_text(block(page, "cpp"))
    (tmp_path / "table.cpp").write_text(table)

    tool = tmp_path / "spmdx-opt"
    sources = [tmp_path / "table.cpp", room / "slices_apart.cpp", root / "csrc/tools/spmdx_opt.cpp"]
    folders = [f"-I{tmp_path}", f"-I{root / 'csrc'}"]
    library = spmdx_opt.parent / "libspmdx_core.a"
    subprocess.run(
        ["g++", "-std=c++20", "-O0", *folders, *sources, library, "-pthread", "-o", tool],
        check=True,
        timeout=300,
    )
    assert rule_of(tool, graph) == expected
