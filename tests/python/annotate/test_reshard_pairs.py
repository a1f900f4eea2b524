# SPDX-License-Identifier: Apache-2.0
"""Every pair of shardings: the plan runs and leaves each device its part, within time and memory.

A sample by default; ``--all-pairs`` runs all 11,130 pairs of rank 3 on 2×2×2 for each shape.
"""

import itertools
import math
import random
import sys

import pytest
import spmdx
import torch
from spmdx import _C

SHAPES = ([8, 8, 8], [5, 7, 3], [2, 1, 9])
FIELDS = spmdx.Topology.named("in-process")._fields()


@pytest.fixture(scope="module")
def bench(root):
    sys.path.insert(0, str(root / "benchmarks"))
    import reshard

    yield reshard
    sys.path.remove(str(root / "benchmarks"))


@pytest.fixture(scope="module")
def mesh():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    return spmdx.Mesh(range(8), (2, 2, 2), ("x", "y", "z"))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pairs_run_and_give_each_device_its_part(bench, shape, request):
    layouts = bench.handles(shape)
    assert len(layouts) == 106
    pairs = list(itertools.permutations(layouts, 2))
    if not request.config.getoption("--all-pairs"):
        pairs = random.Random(str(shape)).sample(pairs, 400)
    whole = torch.randn(shape)
    slack, kinds = 4096, set()
    for source, target in pairs:
        plan = _C.reshard_plan("f32", shape, source, target, FIELDS)
        ends = max(bench.held(source, shape), bench.held(target, shape))
        assert plan["peak_bytes"] <= ends + slack, plan
        assert bench.wrong_shards(whole, source, target, FIELDS) == 0, plan
        kinds.update(move["kind"] for move in plan["moves"])
    assert kinds >= {"slice", "all_gather", "all_to_all", "collective_permute", "send_recv"}


@pytest.mark.parametrize("sizes", [(2,), (3,), (4,), (4, 2), (3, 2)], ids=str)
@pytest.mark.parametrize("shape", [[12, 24], [5, 7], [1, 3]], ids=str)
def test_every_pair_on_other_meshes(bench, sizes, shape):
    names = ["x", "y"][: len(sizes)]
    mesh = _C.MeshHandle(list(range(math.prod(sizes))), list(sizes), names)
    specs = {
        tuple(tuple(a for a, p in zip(order, places, strict=True) if p == dim) for dim in range(2))
        for order in itertools.permutations(names)
        for places in itertools.product(range(3), repeat=len(names))
    }
    layouts = [_C.to_sharding([list(e) for e in spec], mesh, shape, "x") for spec in sorted(specs)]
    whole = torch.randn(shape)
    for source, target in itertools.permutations(layouts, 2):
        plan = _C.reshard_plan("f32", shape, source, target, FIELDS)
        assert bench.wrong_shards(whole, source, target, FIELDS) == 0, plan


@pytest.mark.parametrize("shape", [[8, 6], [5, 7]], ids=str)
def test_pairs_between_meshes_run(bench, shape):
    meshes = [
        _C.MeshHandle([0, 1, 2, 3], [2, 2], ["x", "y"]),
        _C.MeshHandle([3, 1, 2, 0], [2, 2], ["x", "y"]),
        _C.MeshHandle([4, 2, 0], [3], ["z"]),
    ]
    layouts = [
        _C.to_sharding(spec, mesh, shape, "x")
        for mesh in meshes
        for name in (mesh.axes[0][0],)
        for spec in ([[name], []], [[], [name]], [[], []])
    ]
    whole = torch.randn(shape)
    for source, target in itertools.permutations(layouts, 2):
        plan = _C.reshard_plan("f32", shape, source, target, FIELDS)
        if source.mesh != target.mesh:
            assert plan["bytes"] == _C.missing_bytes("f32", shape, source, target)
            assert [move["kind"] for move in plan["moves"]] == [
                "send_recv" if plan["bytes"] else "slice"
            ]
        assert bench.wrong_shards(whole, source, target, FIELDS) == 0, plan


@pytest.mark.parametrize("shape", [(8, 8, 8), (5, 7, 3)], ids=str)
def test_remarked_tensors_move_as_planned(bench, mesh, shape):
    """The same through the front door: data that exists is marked again and moves."""
    random_ = random.Random(7)
    specs = [tuple(e or None for e in spec) for spec in bench.all_specs()]
    for _ in range(12):
        source, target = random_.sample(specs, 2)
        whole = torch.randn(shape)
        x = spmdx.mark_sharding(whole.to("spmdx"), mesh, source)
        spmdx.sync(wait=True)
        before, held = spmdx.debug.counters()["wire_bytes"], spmdx.get_sharding(x)._handle
        spmdx.mark_sharding(x, mesh, target)
        parts = [(s.data, s.indices) for s in x.local_shards]
        wanted = spmdx.get_sharding(x)._handle
        spmdx.sync(wait=True)  # a step is counted once it has ended
        plan = _C.reshard_plan("f32", list(shape), held, wanted, FIELDS)
        assert spmdx.debug.counters()["wire_bytes"] - before == plan["bytes"]
        for data, indices in parts:
            assert torch.equal(data, whole[indices])


def test_the_figures_of_the_benchmark(bench, monkeypatch):
    every = bench.handles([64, 64, 64])
    sample = random.Random(1).sample(every, 30)
    monkeypatch.setattr(bench, "handles", lambda shape: sample)
    figures = bench.measure([64, 64, 64], FIELDS)
    assert figures["pairs"] == 30 * 29
    assert figures["replicate-then-slice / planned"] >= bench.LEAST_SAVED
    assert figures["worst planned / lower bound"] == 1.0
    assert figures["worst peak memory / larger end"] == 1.0
