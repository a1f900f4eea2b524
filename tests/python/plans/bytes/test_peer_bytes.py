# SPDX-License-Identifier: Apache-2.0
"""A step of spmdx sends no more, and no more often, than DDP, FSDP2 and DTensor for the same model.

The peers run as processes over Gloo and their collectives are counted; spmdx's step is planned.
"""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
SIZE = {"2L/32d": (dict(layers=2, width=32, heads=4, context=16), 4)}


@pytest.fixture(scope="module")
def peers_benchmark():
    """benchmarks/bytes.py as a module."""
    sys.path.insert(0, str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("peer_bytes", BENCHMARKS / "bytes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module", params=[2, 4])
def rows(peers_benchmark, request):
    """{row: (the peer's, spmdx's)} of a world."""
    found = peers_benchmark.compare(request.param, SIZE)
    return {name: (theirs, ours) for name, _, theirs, ours in found}


ROWS = (
    "data parallel",
    "data parallel, ignored tokens",
    "fully sharded",
    "fully sharded, no reshard",
    "tensor parallel, MLP",
    "tensor parallel, MLP and heads",
)


pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch has no distributed")


@pytest.mark.parametrize("row", ROWS)
def test_no_more_collectives_than_the_peer(peers_benchmark, rows, row):
    theirs, ours = rows[row]
    assert 0 < peers_benchmark.totals(ours)[0] <= peers_benchmark.totals(theirs)[0], (theirs, ours)


@pytest.mark.parametrize("row", ROWS)
def test_no_more_bytes_than_the_peer(peers_benchmark, rows, row):
    theirs, ours = rows[row]
    assert 0 < peers_benchmark.totals(ours)[1] <= peers_benchmark.totals(theirs)[1], (theirs, ours)


def test_the_peers_are_counted_by_their_closed_forms(peers_benchmark, rows):
    """What the literature says they send: a check of the counting itself."""
    layers, width, context, vocab = 2, 32, 16, 65
    parameters = layers * (12 * width**2 + 2 * width) + (vocab + context + 1) * width
    world = 2 if rows["data parallel"][0]["all_reduce"][1] == parameters * 4 else 4
    share = (world - 1) / world
    assert rows["data parallel"][0] == {"all_reduce": [1, 2 * parameters * 4 * share]}
    assert rows["fully sharded"][0]["all_gather"][0] == 2 * layers + 1
    assert rows["fully sharded, no reshard"][0]["all_gather"][0] == layers + 1
    assert rows["fully sharded"][0]["reduce_scatter"][0] == layers + 1
    activation = 4 * context * width * 4
    assert rows["tensor parallel, MLP"][0] == {
        "all_reduce": [2 * layers, 2 * layers * 2 * activation * share]
    }
