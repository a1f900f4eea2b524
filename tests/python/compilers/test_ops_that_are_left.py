# SPDX-License-Identifier: Apache-2.0
"""Ops that a compiler leaves when it sees them, and kernels that say that the program is wrong."""

import importlib.util
import warnings

import pytest
import spmdx
import torch
from compilers_of_tests import LeavesGelu, LeavesWhatIsNotThere
from torch.nn import functional

NEEDS = {"xla": "jaxlib", "iree": "iree", "onnxruntime": "onnxruntime"}


def block(x):
    return (functional.gelu(x * 2 + 1) * 3 - 1).sum(-1) / 2


def test_what_is_around_them_is_compiled():
    x = torch.randn(6, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spmdx.set_compiler(LeavesGelu(), compile_now=True)
        for _ in range(2):
            torch.testing.assert_close(block(x.to("spmdx")).cpu(), block(x))
        rows = spmdx.explain().segments.segments
    assert [(row.ops, row.state) for row in rows] == [(2, "compiled"), (4, "compiled")]
    assert spmdx.compilers.left() == [("aten.gelu", "no table")]
    spmdx.set_compiler(None)
    assert spmdx.compilers.left() == []


def test_places_that_no_op_has_refuse_the_segment():
    x = torch.randn(6, 5)
    spmdx.set_compiler(LeavesWhatIsNotThere(), compile_now=True)
    with pytest.warns(UserWarning, match="not compiled a segment of 7 ops: no op of it is named"):
        torch.testing.assert_close(block(x.to("spmdx")).cpu(), block(x))
    (row,) = spmdx.explain().segments.segments
    assert row.state == "refused" and "no such op" in row.why


def rows_of_a_table(table, index):
    return (functional.embedding(index, table) * 2).relu() + 1


def quotients(table, index):
    return torch.div(torch.full_like(index, 12), index, rounding_mode="trunc") * 2 + 1


WRONG = {
    "index": (rows_of_a_table, IndexError, 9),
    "index from the end": (rows_of_a_table, IndexError, -1),
    "division": (quotients, RuntimeError, 0),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("compiler", NEEDS)
def test_errors_of_the_program_are_raised_and_refuse_nothing(compiler, name):
    if importlib.util.find_spec(NEEDS[compiler]) is None:
        pytest.skip(f"{NEEDS[compiler]} is not installed")
    function, kind, bad = WRONG[name]
    table, index = torch.randn(5, 3), torch.tensor([1, 2, 4])
    wrong = torch.tensor([1, bad, 2])
    with pytest.raises(kind) as expected:
        function(table, wrong)
    spmdx.set_compiler(compiler, compile_now=True)
    for given in (index, wrong, index):
        if given is wrong:
            with pytest.raises(Exception) as raised:
                function(table.to("spmdx"), given.to("spmdx")).cpu()
            assert "test_ops_that_are_left.py" in str(raised.value)
            assert str(expected.value).splitlines()[0] in str(raised.value)
        else:
            found = function(table.to("spmdx"), given.to("spmdx")).cpu()
            torch.testing.assert_close(found, function(table, given))
    (row,) = spmdx.explain().segments.segments
    assert row.state == "compiled"
