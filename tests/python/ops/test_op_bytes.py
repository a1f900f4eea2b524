# SPDX-License-Identifier: Apache-2.0
"""No core op moves more than its bound, derived by hand, in any placement over one axis."""

import sys
from pathlib import Path

import pytest
import spmdx

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import op_bytes
from op_bounds import bound
from op_bytes import OPS


@pytest.fixture(autouse=True)
def bytes_alone():
    before = spmdx.get_topology()
    spmdx.set_topology(op_bytes.BYTES_ALONE)
    yield
    spmdx.set_topology(before)


@pytest.mark.parametrize("name", OPS)
def test_an_op_moves_no_more_than_its_bound(name):
    """Where it is on record that some do, exactly those: a bound that is reached is to be kept."""
    rows = op_bytes.measure(OPS[name], 2)
    above = [row for row in rows if op_bytes.exceeds(*row[2:])]
    assert len(above) == op_bytes.OPEN.get(name, (0, ""))[0], above


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize(
    "name, cuts, expected",
    [
        ("mm", {"a": None, "b": "n"}, lambda n: 0),
        ("mm", {"a": "m", "b": "n"}, lambda n: 24 * 24 * (n - 1) / n),  # one of them is gathered
        ("softmax", {"x": "c"}, lambda n: 2 * 2 * 24 * (n - 1) / n),
        ("cumsum", {"x": "c"}, lambda n: min(24 * (n - 1), 24 * 24 * (n - 1) / n**2)),
        ("roll", {"x": "r"}, lambda n: min(24, 24 * 24 * (n - 1) / n**2)),
        ("clip_grad_norm_", {"p": "r", "q": "c"}, lambda n: 2 * 2 * (n - 1) / n),
    ],
)
def test_bounds_are_what_is_derived_on_paper(name, cuts, expected, devices):
    assert bound(OPS[name], cuts, devices).bytes == pytest.approx(4 * expected(devices))
