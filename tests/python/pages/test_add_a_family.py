# SPDX-License-Identifier: Apache-2.0
"""docs/add_a_family.md works: its files make its text test pass; what it shows of softmax."""

import re
import textwrap

import page_files
import pytest


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs/add_a_family.md").read_text()


def test_the_three_files_of_the_page_make_a_rule(page, root, spmdx_opt, tmp_path):
    paths = page_files.put_in(page, root, tmp_path)
    assert len(paths) == page_files.price(root, "docs/add_a_family.md") == 3, paths
    (golden,) = [path for path in paths if path.endswith(".txt")]
    graph, expected = (tmp_path / golden).read_text().split("// -----\n")
    known = page_files.run(spmdx_opt, "--rule", "-", text=graph)
    assert "fallback" in known, "the page's op has a row: choose another"
    tool = page_files.build(tmp_path, root, spmdx_opt, *page_files.TOOL)
    assert page_files.run(tool, "--rule", "-", text=graph) == expected


def test_a_composite_dim_is_expanded_as_the_page_shows(page, spmdx_opt):
    block = r"^ *<!-- composite {} -->\n *```text\n(.*?)^ *```"
    rule, plan = (
        textwrap.dedent(re.search(block.format(what), page, re.M | re.S)[1])
        for what in ("rule", "plan")
    )
    graph, expected = plan.split("// -----\n")
    assert page_files.run(spmdx_opt, "--rule", "-", text=graph) == rule
    printed = page_files.run(spmdx_opt, "--compile", "--verify", "-", text=graph)
    nodes = re.sub(' cause ".*"', "", printed).splitlines()[2:-1]
    assert nodes == expected.splitlines()
