# SPDX-License-Identifier: Apache-2.0
"""Checkpoints hold every bit, and load on any mesh, spec and number of devices."""

import json
import math
import zlib

import pytest
import spmdx
import torch
from checkpoints import LAYOUTS, MESHES, assert_same_bits, mesh_of, placed, run_python, values
from messages import eight_devices
from spmdx.checkpoint import load, save
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

eight_devices()


def manifest(folder):
    return json.loads((folder / "spmdx.manifest.json").read_text())["manifest"]


@pytest.mark.parametrize("saved", LAYOUTS)
def test_what_8_devices_saved_loads_everywhere(saved, tmp_path):
    tensors = values()
    save(placed(tensors, saved, 8), tmp_path)
    for devices in MESHES:
        for layout in LAYOUTS:
            target = placed(tensors, layout, devices, like=True)
            before = {name: (t.mesh, t.partition_spec) for name, t in target.items()}
            load(target, tmp_path)
            assert_same_bits(target, tensors)
            assert {name: (t.mesh, t.partition_spec) for name, t in target.items()} == before
            assert all(
                spmdx.get_sharding(t).boxes(t.shape) == t.sharding.boxes(t.shape)
                for t in target.values()
            )


@pytest.mark.parametrize("devices", [1, 3])
def test_a_process_of_other_devices_loads_it(devices, tmp_path):
    save(placed(values(), "2-D", 8), tmp_path)
    code = (
        "import sys, spmdx, torch\n"
        "from checkpoints import *\n"
        "devices = int(sys.argv[2])\n"
        "target = placed(values(), 'dim 1', devices, like=True)\n"
        "spmdx.checkpoint.load(target, sys.argv[1])\n"
        "assert_same_bits(target, values())\n"
        "assert spmdx.runtime.global_runtime_device_count() == devices\n"
    )
    run_python(code, tmp_path, devices, devices=devices)


def test_every_distinct_shard_is_written_once(tmp_path):
    tensors = {"w": torch.randn(16, 8), "whole": torch.randn(100)}
    mesh = mesh_of(8)
    state = {name: t.to("spmdx") for name, t in tensors.items()}
    spmdx.mark_sharding(state["w"], mesh, ("a", None))
    save(state, tmp_path)
    chunks = {name: entry[3] for name, entry in manifest(tmp_path)["entries"].items()}
    assert [c[:2] for c in chunks["w"]] == [[[4 * i, 0], [4, 8]] for i in range(4)]
    assert len(chunks["whole"]) == 1
    sizes = [math.prod(c[1]) * 4 for found in chunks.values() for c in found]
    written = sum(size for size, _ in manifest(tmp_path)["files"].values())
    assert sum(sizes) == (16 * 8 + 100) * 4
    assert written < sum(sizes) + 2000 * len(sizes) + 6000  # what torch.save adds to a chunk


def test_any_nested_state_comes_back(tmp_path):
    def state(fill):
        return {
            "step": fill(7),
            "name": fill("run"),
            "nothing": None,
            "sizes": (fill(1), fill(2)),
            "history": [fill(0.5), fill(0.25)],
            "nested": {"list": [{"x": fill(1)}, fill(torch.arange(3))], 3: fill(True)},
            "cpu": fill(torch.arange(6.0)).reshape(2, 3).t(),
            "device": fill(torch.arange(8.0)).to("spmdx"),
        }

    def blank(value):
        return torch.zeros_like(value) if isinstance(value, torch.Tensor) else type(value)()

    save(state(lambda value: value), tmp_path)
    target = state(blank)
    inner, listed = target["nested"], target["nested"]["list"]
    assert load(target, tmp_path) == ([], [])
    expected = state(lambda value: value)
    assert target["nested"] is inner and inner["list"] is listed and inner[3] is True
    assert torch.equal(target.pop("cpu"), expected.pop("cpu"))
    assert torch.equal(target.pop("device").cpu(), expected.pop("device").cpu())
    assert torch.equal(listed.pop(1), expected["nested"]["list"].pop(1))
    assert target == expected


def test_entries_have_the_names_of_torch_distributed_checkpoint(tmp_path):
    model = torch.nn.Linear(4, 4).to("spmdx")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4).to("spmdx")).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "l": [[1], [{}]]}
    state["deep"] = [[torch.ones(1)], [1, 2], {"a": [(1, 2)]}]
    save(state, tmp_path)
    flat, paths = flatten_state_dict(state)
    entries = manifest(tmp_path)["entries"]
    assert list(entries) == list(flat)
    assert {name: tuple(entry[0]) for name, entry in entries.items()} == paths


def test_tied_and_clones_and_views(tmp_path):
    base = torch.arange(16.0).to("spmdx")
    save({"t": torch.ones(16)}, tmp_path)
    clone, view = base.clone(), base[4:8]
    load({"t": base}, tmp_path)
    assert torch.equal(clone.cpu(), torch.arange(16.0))  # shares no memory with what was loaded
    assert torch.equal(view.cpu(), torch.ones(4))
    save({"v": torch.full((4,), 2.0)}, tmp_path)
    load({"v": view}, tmp_path)
    assert base.cpu().tolist() == [1.0] * 4 + [2.0] * 4 + [1.0] * 8


def test_parameters_stay_parameters_and_gradients_stay(tmp_path):
    w = torch.nn.Parameter(torch.ones(8, 2).to("spmdx"))
    w = spmdx.mark_sharding(w, mesh_of(8), ("a", None))
    (w * 3).sum().backward()
    save({"w": w * 2}, tmp_path)
    load({"w": w}, tmp_path)
    assert isinstance(w, torch.nn.Parameter) and w.requires_grad and w.is_leaf
    assert w.grad.cpu().unique().tolist() == [3.0] and w.cpu().unique().tolist() == [2.0]


def test_results_that_did_not_run_yet_are_saved(tmp_path):
    x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh_of(8), ("a", "b"))
    save({"y": x @ x.t(), "moved": spmdx.mark_sharding(x + 1, mesh_of(8), (None, "a"))}, tmp_path)
    target = {"y": torch.zeros(8, 8), "moved": torch.zeros(8, 4)}
    load(target, tmp_path)
    assert target["y"].unique().tolist() == [4.0] and target["moved"].unique().tolist() == [2.0]


def test_targets_on_several_meshes_and_on_none(tmp_path):
    save({name: torch.arange(16.0) for name in "abcd"}, tmp_path)
    target = {name: torch.zeros(16).to("spmdx") for name in "abc"} | {"d": torch.zeros(16)}
    spmdx.mark_sharding(target["a"], mesh_of(8), ("a",))
    spmdx.mark_sharding(target["b"], mesh_of(3), ("a",))
    load(target, tmp_path)
    assert all(torch.equal(t.cpu(), torch.arange(16.0)) for t in target.values())
    assert spmdx.get_sharding(target["c"]) is None


def test_conjugates_and_parts_of_memory(tmp_path):
    big = torch.randn(1000, 8)
    state = {"part": big[:2], "conj": torch.tensor([1 + 2j]).conj()}
    save(state, tmp_path)
    target = {"part": torch.zeros(2, 8), "conj": torch.zeros(1, dtype=torch.complex64)}
    load(target, tmp_path)
    assert torch.equal(target["part"], big[:2]) and target["conj"].item() == 1 - 2j
    assert (tmp_path / "__0_0.distcp").stat().st_size < 4000


def test_a_checkpoint_of_the_first_format_loads(tmp_path):
    """Its checksums are those of the bytes alone."""
    tensors = values()
    save({**placed(tensors, "2-D", 8), "step": 3}, tmp_path)
    body = manifest(tmp_path)
    assert body["format"] == 2
    for *_, chunks in body["entries"].values():
        for chunk in chunks:
            _, _, file, start, length, _ = chunk
            content = (tmp_path / file).read_bytes()[start : start + length]
            chunk[5] = zlib.crc32(content)
    text = json.dumps({**body, "format": 1})
    sealed = f'{{"crc32": {zlib.crc32(text.encode())}, "manifest": {text}}}\n'
    (tmp_path / "spmdx.manifest.json").write_text(sealed)
    target = {**placed(tensors, "dim 1", 4, like=True), "step": 0}
    load(target, tmp_path)
    assert target.pop("step") == 3
    assert_same_bits(target, tensors)
