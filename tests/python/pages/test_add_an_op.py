# SPDX-License-Identifier: Apache-2.0
"""docs/add_an_op.md works: its row, put into a copy of the table, makes its text test pass."""

import page_files


def test_the_row_and_the_text_test_of_the_page_fit(root, spmdx_opt, tmp_path):
    page = (root / "docs/add_an_op.md").read_text()
    table, golden = paths = page_files.put_in(page, root, tmp_path)
    assert len(paths) == page_files.price(root, "docs/add_an_op.md") == 2
    assert table == "csrc/rules/table.cpp"
    graph, expected = (tmp_path / golden).read_text().split("// -----\n")
    known = page_files.run(spmdx_opt, "--rule", "-", text=graph)
    assert "fallback" in known, "the page's op has a row: choose another"
    tool = page_files.build(tmp_path, root, spmdx_opt, "csrc/tools/spmdx_opt.cpp")
    assert page_files.run(tool, "--rule", "-", text=graph) == expected
