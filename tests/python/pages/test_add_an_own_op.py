# SPDX-License-Identifier: Apache-2.0
"""docs/add_an_own_op.md works: its six files make an op that plans use and that runs in parts."""

import pathlib

import page_files
import pytest
import torch

GOLDEN = "tests/golden/expand/a_trace_sums_a_diagonal_of_each_block.txt"
KERNEL = "csrc/bridge/backend/kernels/diagonal_kernels.cpp"
GRAPH = """mesh(a=2, b=2)
%0 = input f32[7, 5] !f32[7@a, 5@b]
%1 : f32[] = spmdx.diagonal_sum(%0, {offset})
return %1
"""


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """The folder of the page's files, and their paths."""
    folder = tmp_path_factory.mktemp("own_op")
    return folder, page_files.put_in((root / "docs/add_an_own_op.md").read_text(), root, folder)


@pytest.fixture(scope="module")
def kernel(built, root, spmdx_opt):
    """Runs the kernel of a graph's one op, on all and in parts."""
    torch_folder = pathlib.Path(torch.__file__).parent
    return page_files.build(
        built[0],
        root,
        spmdx_opt,
        "tests/python/pages/own_op_in_parts.cpp",
        KERNEL,
        options=[
            f"-isystem{torch_folder / 'include'}",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            *(f"-L{torch_folder / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"),
            f"-Wl,-rpath,{torch_folder / 'lib'}",
        ],
    )


def test_an_op_of_our_own_is_six_files(built, root):
    _, paths = built
    assert len(paths) == page_files.price(root, "docs/add_an_own_op.md") == 6, paths


def test_the_text_test_of_the_page_holds(built, root, spmdx_opt):
    folder, _ = built
    tool = page_files.build(folder, root, spmdx_opt, *page_files.TOOL)
    graph, expected = (folder / GOLDEN).read_text().split("// -----\n")
    assert page_files.run(tool, "--pass", "expand", "-", text=graph) == expected
    plan = page_files.run(tool, "--compile", "--verify", "-", text=graph)
    assert "{partial sum: a,b} = spmdx.diagonal_sum" in plan


@pytest.mark.parametrize("offset", [0, 2, -3])
def test_the_kernel_adds_up_over_the_blocks(kernel, offset):
    whole, parts = page_files.run(kernel, text=GRAPH.format(offset=offset)).split()
    assert whole == parts
    assert float(whole) == torch.arange(35.0).view(7, 5).diagonal(offset).sum()
