# SPDX-License-Identifier: Apache-2.0
"""docs/add_a_pass.md works: its five files make a pass that its golden test shows."""

import page_files
import pytest

GOLDEN = "tests/golden/join-casts/a_cast_back_reads_the_value_itself.txt"


@pytest.fixture(scope="module")
def built(root, spmdx_opt, tmp_path_factory):
    """The folder of the page's files, their paths, and the spmdx-opt with its pass."""
    folder = tmp_path_factory.mktemp("pass")
    paths = page_files.put_in((root / "docs/add_a_pass.md").read_text(), root, folder)
    return folder, paths, page_files.build(folder, root, spmdx_opt, *page_files.TOOL)


def test_a_pass_is_five_files(built, root):
    _, paths, _ = built
    assert len(paths) == page_files.price(root, "docs/add_a_pass.md") == 5, paths


def test_the_golden_test_of_the_page_holds(built):
    folder, _, tool = built
    graph, expected = (folder / GOLDEN).read_text().split("// -----\n")
    assert page_files.run(tool, "--pass", "join-casts", "-", text=graph) == expected


def test_plans_are_made_with_the_pass(built, spmdx_opt):
    folder, _, tool = built
    passes = page_files.run(tool, "--passes").split()
    assert passes.index("join-casts") == passes.index("simplify") + 1
    graph = (folder / GOLDEN).read_text().split("// -----\n")[0]
    with_it, without = (
        page_files.run(program, "--compile", "--verify", "-", text=graph)
        for program in (tool, spmdx_opt)
    )
    assert with_it.count("_to_copy") == without.count("_to_copy") - 2 == 4


def test_the_tour_names_every_pass(built):
    folder, _, tool = built
    tour = (folder / "docs/tour.md").read_text()
    lacking = [p for p in page_files.run(tool, "--passes").split() if f"**{p}**" not in tour]
    assert lacking == []
