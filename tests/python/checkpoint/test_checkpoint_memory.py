# SPDX-License-Identifier: Apache-2.0
"""A load never holds more than the shards and one chunk, a save nothing but the shards.

Measured as the largest resident set of a child process (VmHWM, which Linux resets on request).
"""

import json
import sys

import pytest
import spmdx
import torch
from checkpoints import mesh_of, run_python
from messages import eight_devices
from spmdx.checkpoint import save, save_safetensors

eight_devices()

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

COUNT, ROWS, COLUMNS = 4, 4096, 2048  # tensors of 32 MiB
TENSOR = ROWS * COLUMNS * 4
CHUNK = TENSOR // 4  # saved along an axis of 4
SLACK = 12 * 2**20  # blocks of files, Python objects, what the allocator keeps

CASES = [
    ("load", 8, "dim 0"),
    ("load", 3, "dim 1"),
    ("load", 2, "whole"),
    ("load_safetensors", 8, "dim 0"),
    ("save", 8, "dim 0"),
    ("async_save", 8, "dim 1"),
]
CODE = """
import json, re, sys
import safetensors, spmdx, torch, torch.distributed.checkpoint
from checkpoints import mesh_of
SPECS = {"dim 0": ("a", None), "dim 1": (None, "a"), "whole": (None, None)}
def status(key):
    return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
def made(rows, mesh, spec):
    state = {"t%d" % i: torch.full((rows, 2048), 7.0).to("spmdx") for i in range(4)}
    for t in state.values():
        spmdx.mark_sharding(t, mesh, SPECS[spec])
    spmdx.sync(wait=True)
    return state
folder = sys.argv[1]
for what, devices, spec in json.loads(sys.argv[2]):
    small = made(64, mesh_of(devices), spec)  # what a first call loads and compiles
    spmdx.checkpoint.save(small, folder + "/small")
    spmdx.checkpoint.load(small, folder + "/small")
    state = made(4096, mesh_of(devices), spec)
    path = folder + "/" + what
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    getattr(spmdx.checkpoint, what)(state, path)
    spmdx._checkpoint.background.wait_for_last()
    print(what, devices, spec, status("VmHWM") - before, sep=",")
    if what.startswith("load"):
        assert all(t.cpu().unique().tolist() == [i] for i, t in enumerate(state.values()))
    del state, small
"""


@pytest.fixture(scope="module")
def growth(tmp_path_factory):
    """{case: bytes that the resident set grew by}."""
    folder = tmp_path_factory.mktemp("memory")
    state = {f"t{i}": torch.full((ROWS, COLUMNS), float(i)) for i in range(COUNT)}
    device = {name: t.to("spmdx") for name, t in state.items()}
    for t in device.values():
        spmdx.mark_sharding(t, mesh_of(8), ("a", None))
    save(device, folder / "load")
    save_safetensors(state, folder / "load_safetensors")
    done = run_python(CODE, folder, json.dumps(CASES), MALLOC_MMAP_THRESHOLD_="65536")
    rows = [line.split(",") for line in done.stdout.splitlines()]
    return {(what, int(devices), spec): int(grown) for what, devices, spec, grown in rows}


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_a_load_takes_one_chunk_beside_the_shards(case, growth):
    assert growth[case] < CHUNK + SLACK


def test_a_load_of_safetensors_takes_one_slice_beside_the_shards(growth):
    # Pages of the mapped file count as resident: those of one tensor at most.
    assert growth[CASES[3]] < TENSOR + CHUNK + SLACK


def test_a_save_takes_nothing_beside_the_shards(growth):
    assert growth[CASES[4]] < SLACK


def test_a_save_in_the_background_takes_a_copy_of_what_it_writes(growth):
    assert growth[CASES[5]] < COUNT * TENSOR + SLACK
