# SPDX-License-Identifier: Apache-2.0
"""Topologies and hybrid meshes: what they refuse, how they are kept, and that results stay."""

import copy
import dataclasses
import json
import os
import pickle
import subprocess
import sys

import pytest
import spmdx
import torch
from messages import eight_devices
from spmdx.topology import Level

TWO_LEVELS = spmdx.Topology(
    "two levels",
    (
        Level(picoseconds_per_byte=4),
        Level(
            latency_ns=9_000,
            picoseconds_per_byte=9_000,
            efficiency=((1e3, 0.5), (1e5, 1.0)),
            processor_usage=0.5,
        ),
    ),
)


@pytest.fixture(autouse=True)
def in_process_behind():
    eight_devices()
    yield
    spmdx.set_topology("in-process")


def hybrid(inner, outer, names):
    return spmdx.HybridMesh(ici_mesh_shape=inner, dcn_mesh_shape=outer, axis_names=names)


def test_blocks_are_consecutive_devices():
    mesh = hybrid((2, 2), (2, 1), ("data", "model"))
    assert mesh.get_logical_mesh().tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    mesh = hybrid((2, 2), (1, 2), ("data", "model"))
    assert mesh.get_logical_mesh().tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert (mesh.mesh_shape, mesh.ici_mesh_shape, mesh.dcn_mesh_shape) == ((2, 4), (2, 2), (1, 2))
    assert repr(mesh) == "Mesh(data=2, model=2*2, ids=[0, 1, 4, 5, 2, 3, 6, 7])"
    assert spmdx.HybridMesh((4, 2)).dcn_mesh_shape == (1, 1)


def test_hybrid_meshes_survive_copies_and_differ_from_plain_ones():
    mesh = hybrid((2, 2), (1, 2), ("data", "model"))
    for again in (pickle.loads(pickle.dumps(mesh)), copy.deepcopy(mesh)):
        assert again == mesh and type(again) is spmdx.HybridMesh and hash(again) == hash(mesh)
    plain = spmdx.Mesh(mesh.device_ids, mesh.mesh_shape, mesh.axis_names)
    assert plain != mesh and spmdx.HybridMesh((4, 2)) == spmdx.Mesh(range(8), (4, 2))
    x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh, ("model", None))
    assert spmdx.get_sharding(x).mesh == mesh
    assert type(spmdx.get_sharding(x).mesh) is spmdx.HybridMesh


@pytest.mark.parametrize(
    "arguments, said",
    [
        (((2, 2), (2,)), "ici_mesh_shape has 2 sizes, dcn_mesh_shape 1. Expected as many."),
        (((2, 0), (2, 1)), "the mesh has an axis of size 0. Expected sizes of at least 1."),
        (((4, 2), (2, 1)), "the mesh wants device 8, but there are 8 devices"),
        (((2, "a"), (2, 1)), "ici_mesh_shape is (2, 'a'). Expected integers."),
        (((2,), (2,), ("a", "b")), "the number of axes of the mesh, 1, is not that of their names"),
        (((2,), (2,), None, range(3)), "does not hold 3 devices"),
    ],
)
def test_a_hybrid_mesh_that_does_not_fit_is_refused(arguments, said):
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.HybridMesh(*arguments)
    assert said in str(caught.value) and "HybridMesh: " in str(caught.value)
    assert str(caught.value).startswith("test_topology.py:")


def test_a_topology_goes_through_a_file(tmp_path):
    path = tmp_path / "links.json"
    TWO_LEVELS.save(path)
    assert json.loads(path.read_text())["levels"][1]["picoseconds_per_byte"] == 9_000
    assert spmdx.Topology.load(path) == TWO_LEVELS and list(tmp_path.iterdir()) == [path]
    spmdx.set_topology(path)
    assert spmdx.get_topology() == TWO_LEVELS
    spmdx.set_topology("gloo")
    assert spmdx.get_topology() == spmdx.Topology.named("gloo")
    code = "import spmdx; print(spmdx.get_topology().name)"
    run = [sys.executable, "-c", code]
    done = subprocess.run(
        run, env={**os.environ, "SPMDX_TOPOLOGY": str(path)}, capture_output=True, text=True
    )
    assert done.stdout == "two levels\n", done.stderr


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (0.5, "efficiency is 0.5. Expected pairs of a size and a share of the peak"),
        ([(1e3, 0.0)], "a share of the efficiency of level 0 is 0. Expected a share of the peak"),
        ([(1e3, 0.25), (2e3, 0.75)], "work of 2000 takes less time than work of 1000"),
    ],
)
def test_shares_of_links_that_are_none_are_refused(points, said):
    with pytest.raises(spmdx.ShardingError, match=said):
        spmdx.Topology("mine", (Level(efficiency=points),))


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        ("all", "processor_usage is 'all'. Expected a number from 0 to 1"),
        (True, "processor_usage is True. Expected a number from 0 to 1"),
        (-0.1, "processor_usage of level 0 is -0.1.* Expected from 0 to 1"),
        (float("nan"), "processor_usage of level 0 is nan. Expected from 0 to 1"),
    ],
)
def test_what_no_link_uses_of_a_processor_is_refused(usage, said):
    with pytest.raises(spmdx.ShardingError, match=said):
        spmdx.Topology("mine", (Level(processor_usage=usage),))


@pytest.mark.parametrize("field", ["processors", "record_ns"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2", 2**53])
def test_what_devices_cannot_share_is_refused(tmp_path, field, value):
    with pytest.raises(
        spmdx.ShardingError, match=f"test_topology.py:.*{field} is {value!r}. Expec"
    ):
        spmdx.Topology("mine", (Level(),), **{field: value})
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", "levels": [{}], field: value}))
    with pytest.raises(spmdx.ShardingError, match=f"{field} is {value!r}. Expec"):
        spmdx.Topology.load(path)


def test_spmdx_opt_reads_what_is_saved(tmp_path, spmdx_opt):
    def plan(topology):
        sum_of_all = ["mesh(data=2*4)", "f32[512, 512]{partial sum: data}", "f32[512, 512]"]
        command = [spmdx_opt, "--reshard", *sum_of_all, "--topology", topology]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    path = tmp_path / "links.json"
    for name in ("in-process", "gloo", "nvlink", "infiniband"):
        spmdx.Topology.named(name).save(path)
        assert plan(path) == plan(name)
    dataclasses.replace(TWO_LEVELS, processors=2, record_ns=700).save(path)
    assert spmdx.Topology.load(path).processors == 2 and spmdx.Topology.load(path).record_ns == 700
    assert "reduce_scatter over data:(2)4" in plan(path) != plan("in-process")
    spmdx.calibrate(path)
    assert "cost_ns" in plan(path)


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"levels": []}', "KeyError: 'name'"),
        ('{"name": "x", "levels": []}', "the levels are (). Expected one or more"),
        ('{"name": "x", "levels": [{"speed": 1}]}', "TypeError"),
        ('{"name": "x", "levels": [{"latency_ns": 1.5}]}', "latency_ns of level 0 is 1.5."),
        ('{"name": "x", "levels": [{"latency_ns": -1}]}', "latency_ns of level 0 is -1."),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, said):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.set_topology(path)
    assert said in str(caught.value), str(caught.value)
    assert str(caught.value).startswith("test_topology.py:")


def test_what_is_no_topology_is_refused():
    with pytest.raises(spmdx.ShardingError, match="no topology is called 'pigeon'. Expected one"):
        spmdx.set_topology("pigeon")
    with pytest.raises(spmdx.ShardingError, match="the argument is a int. Expected a spmdx.Topo"):
        spmdx.set_topology(3)
    with pytest.raises(spmdx.ShardingError, match="is no topology: FileNotFoundError"):
        spmdx.Topology.load("nowhere.json")
    with pytest.raises(spmdx.ShardingError, match="devices is 1. Expected an int of at least 2"):
        spmdx.calibrate(devices=1)
    with pytest.raises(spmdx.ShardingError, match="devices is 1000000. Expected at most 64: times"):
        spmdx.calibrate(devices=10**6)


def test_calibration_measures_and_writes(tmp_path):
    found = spmdx.calibrate(tmp_path / "here.json", devices=4)
    level = found.levels[0]
    assert len(found.levels) == 1 and level.latency_ns > 0 and level.message_ns >= 0
    # Copies in memory: between 100 MB/s and 10 TB/s on any machine that runs this.
    assert 0.1 <= level.picoseconds_per_byte <= 10_000
    assert spmdx.Topology.load(tmp_path / "here.json") == found
    spmdx.set_topology(found)
    assert spmdx.get_topology() == found


def linear_training(mesh, batch, steps=2):
    """Two steps of a data-parallel perceptron; its weights, and the collectives of the last."""
    torch.manual_seed(0)
    weights = [torch.randn(24, 33), torch.randn(33, 7)]
    x = torch.randn(batch, 24)
    if mesh is not None:
        weights = [w.to("spmdx") for w in weights]
        x = x.to("spmdx")
    weights = [torch.nn.Parameter(w) for w in weights]
    if mesh is not None:
        spmdx.mark_sharding(x, mesh, ("data", None))
        for w in weights:
            spmdx.mark_sharding(w, mesh, (None, None))
    optimizer = torch.optim.SGD(weights, lr=0.1)
    kinds = []
    for _ in range(steps):
        optimizer.zero_grad()
        ((x @ weights[0]).relu() @ weights[1]).square().mean().backward()
        optimizer.step()
        if mesh is not None:
            spmdx.mark_step()
            kinds = [c.kind for c in spmdx.explain().collectives]
    return [w.detach().cpu() for w in weights], kinds


@pytest.mark.parametrize("inner, outer", [(2, 2), (4, 2), (2, 4), (2, 3), (3, 2)])
@pytest.mark.parametrize("batch", [960, 517])
def test_training_across_blocks_gives_the_numbers_of_one_device(inner, outer, batch):
    expected, _ = linear_training(None, batch)
    spmdx.set_topology(spmdx.Topology("slow", (Level(0, 10, 1, 1), Level(0, 20, 1, 1_000_000))))
    weights, kinds = linear_training(hybrid((inner,), (outer,), ("data",)), batch)
    for found, wanted in zip(weights, expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    if batch % (inner * outer) == 0:  # of uneven batches other moves may be cheaper
        assert {"reduce_scatter", "all_reduce", "all_gather"} <= set(kinds), kinds


def test_a_new_topology_is_a_new_plan():
    mesh = hybrid((2,), (4,), ("data",))
    _, plain = linear_training(mesh, 24)
    assert "reduce_scatter" not in plain
    spmdx.set_topology(TWO_LEVELS)
    before = spmdx.debug.counters()["plans_compiled"]
    linear_training(mesh, 24)
    assert spmdx.debug.counters()["plans_compiled"] > before
