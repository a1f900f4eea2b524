# SPDX-License-Identifier: Apache-2.0
"""docs/add_a_family.md works: its header, its source and its row make its text test pass."""

import page_files


def test_the_three_files_of_the_page_make_a_rule(root, spmdx_opt, tmp_path):
    page = (root / "docs/add_a_family.md").read_text()
    paths = page_files.put_in(page, root, tmp_path)
    assert len(paths) == page_files.price(root, "docs/add_a_family.md") == 3, paths
    (shown,) = page_files.marked(page, "rule")
    graph, expected = shown.split("// -----\n")
    known = page_files.run(spmdx_opt, "--rule", "-", text=graph)
    assert "fallback" in known, "the page's op has a row: choose another"
    tool = page_files.build(tmp_path, root, spmdx_opt, "csrc/tools/spmdx_opt.cpp")
    assert page_files.run(tool, "--rule", "-", text=graph) == expected
