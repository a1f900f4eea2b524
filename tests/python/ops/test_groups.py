# SPDX-License-Identifier: Apache-2.0
"""Products of groups of rows, histograms, and rows that are added: any dim may be cut."""

import pytest
import spmdx
import torch
from composites import compare, fewest_bytes, mesh_of, received, run

ROWS, INNER, COLUMNS, GROUPS = 10, 8, 12, 3


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def product(a, b, ends):
    return torch.nn.functional.grouped_mm(a, b, offs=ends)


def ends(last):
    """The second group is empty."""
    return torch.tensor([4, 4, last], dtype=torch.int32)


OPERANDS = {
    "rows by matrices": (numbers(ROWS, INNER), numbers(GROUPS, INNER, COLUMNS), ends(ROWS)),
    "matrices by columns": (numbers(GROUPS, ROWS, INNER), numbers(INNER, COLUMNS), ends(COLUMNS)),
    "columns by rows": (numbers(COLUMNS, ROWS + 2), numbers(ROWS + 2, INNER), ends(ROWS + 2)),
    "matrices by matrices": (numbers(GROUPS, ROWS, INNER), numbers(GROUPS, INNER, COLUMNS), None),
}


def cuts(tensor):
    """Every way to cut at most one dim."""
    if tensor is None:
        return [None]
    return [
        tuple("x" if d == dim else None for d in range(tensor.dim()))
        for dim in range(-1, tensor.dim())
    ]


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("form", OPERANDS)
def test_groups_of_rows_may_be_cut_in_every_dim(form, devices):
    a, b, last = OPERANDS[form]
    tensors = [a, b] if last is None else [a, b, last]
    for spec in cuts(a):
        for other in cuts(b):
            specs = [spec, other] if last is None else [spec, other, ("x",)]
            function = product if last is not None else (lambda a, b: product(a, b, None))
            spmdx.debug.reset_counters()
            compare(function, tensors, mesh_of(devices), specs, relative=1e-5)
            assert spmdx.debug.fallbacks() == {}


def test_experts_that_lie_on_their_devices_stay_there():
    tensors = [numbers(ROWS, INNER), numbers(4, INNER, 64), torch.tensor([3, 5, 5, 10]).int()]
    report = compare(
        product, tensors, mesh_of(4), [(None, None), ("x", None, None), (None,)], relative=1e-5
    )
    assert received(report, "all_gather") < 4 * INNER * 64  # less than one expert's matrix


@pytest.mark.parametrize("spec", [("x", None), (None, "x")], ids=str)
def test_a_histogram_with_given_ends_moves_its_counts(spec):
    x = numbers(9, 6)
    with fewest_bytes():
        got, _, report = run(lambda x: x.detach().histc(4, -1, 2), [x], "spmdx", mesh_of(4), [spec])
    assert torch.equal(got[0], x.histc(4, -1, 2))
    assert [c.kind for c in report.collectives] == ["all_reduce"]


def test_a_histogram_without_ends_finds_them_in_all_parts():
    x = numbers(9, 6)

    def count(x):
        return x.detach().histc(5), x.detach().round().histc(3)

    compare(count, [x], mesh_of(4), [("x", None)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("base", ["zeros", "numbers"])
def test_rows_that_are_added_are_added_where_they_are(dtype, base):
    index, rows = torch.arange(24).reshape(8, 3) % 5 - 1, numbers(8, 3, 6).mul(9).to(dtype)
    table = torch.zeros(5, 6, dtype=dtype) if base == "zeros" else numbers(5, 6).mul(9).to(dtype)

    def add(index, rows):
        to = table.to(rows.device) if base == "numbers" else rows.new_zeros(5, 6)
        return to.index_put((index,), rows.detach(), accumulate=True)

    report = compare(add, [index, rows], mesh_of(8), [("x", None), ("x", None, None)])
    assert report.wire_bytes <= 2 * 5 * 6 * 8


def test_a_table_that_a_cut_batch_reads_moves_only_its_gradient():
    index, table = torch.arange(64).reshape(16, 4) % 7, numbers(7, 5).double()
    mesh = mesh_of(4)
    for read in (
        lambda t, i: t[i],
        lambda t, i: t.gather(0, i.reshape(-1, 1).expand(-1, 5)),
        lambda t, i: t.index_select(0, i.reshape(-1)),
        lambda t, i: t.T[:, i],
        lambda t, i: t[i, i % 5],
    ):
        report = compare(read, [table, index], mesh, [(None, None), ("x", None)])
        assert {c.kind for c in report.collectives} == {"all_reduce"}
        assert report.wire_bytes <= 2 * 7 * 5 * 8
