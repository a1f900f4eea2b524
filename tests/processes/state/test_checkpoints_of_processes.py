# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of many processes load in any other number of them, bit for bit."""

import re

import pytest
import torch
from launch import Running, run


def losses(said):
    found = {tuple(line.split()[1:]) for out in said for line in out.splitlines()}
    assert len(found) == 1  # the same in every process
    return torch.tensor([float(number) for number in found.pop()], dtype=torch.float64)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    return folder, losses(run("checkpoint.py", 2, 4, "save", str(folder), "2-D"))


@pytest.mark.parametrize(
    ("processes", "devices", "layout"),
    [(1, 3, "dim 0"), (4, 2, "dim 1"), (2, 1, "replicated"), (3, 2, "minor first, uneven")],
)
def test_what_2_processes_saved_loads_in_others(processes, devices, layout, saved):
    folder, expected = saved
    found = losses(run("checkpoint.py", processes, devices, "load", str(folder), layout))
    assert torch.allclose(found, expected, rtol=1e-9, atol=0)


def test_shards_are_written_by_their_processes(saved):
    files = {path.name for path in (saved[0] / "c").iterdir()}
    assert files == {"__0_0.distcp", "__1_0.distcp", ".metadata", "spmdx.manifest.json"}
    sizes = [(saved[0] / "c" / f"__{p}_0.distcp").stat().st_size for p in range(2)]
    assert max(sizes) < 1.5 * min(sizes)


@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (3, 1)])
def test_plain_calls_and_safetensors(processes, devices, tmp_path):
    said = run("checkpoint.py", processes, devices, "plain", str(tmp_path), "2-D")
    assert said == ["equal\n"] * processes


def test_damage_that_one_process_reads_is_told_to_all(tmp_path):
    assert run("checkpoint.py", 3, 1, "refused", str(tmp_path), "dim 0") == ["refused\n"] * 3


def test_a_process_that_dies_while_it_writes(tmp_path):
    with Running("checkpoint.py", 3, 1, "dies", str(tmp_path), "dim 0") as running:
        ended = running.end()
    assert [how.status for how in ended] == [3, 9, 3], [how.err for how in ended]
    for rank in (0, 2):
        said = r"the checkpoint was not finished: process 1 \(pid \d+\) has died"
        assert re.search(said, ended[rank].out), ended[rank].out
    assert (tmp_path / "c" / "spmdx.manifest.json").exists()


@pytest.mark.on_the_cpu("CUDA itself needs more memory of the host")
def test_a_process_holds_its_own_shards_and_a_chunk(tmp_path):
    said = run("checkpoint.py", 4, 1, "grows", str(tmp_path), "dim 0")
    for out in said:
        grown = dict(line.split() for line in out.splitlines())
        chunk = 8192 * 2048 * 4 // 2  # the mesh is 2 x 2, so dim 0 is cut in two
        assert int(grown["save"]) < 12 * 2**20
        assert int(grown["load"]) < chunk + 12 * 2**20


UNSEEN = """
import pathlib, sys, torch, warnings
import spmdx
from spmdx.checkpoint import CheckpointError, async_save, load, save

warnings.simplefilter("ignore")
here, folder = spmdx.runtime.process_index(), pathlib.Path(sys.argv[1])
(folder / "a file").touch()
saving = async_save({"x": torch.ones(2)}, folder / "a file" / "c")
if here == 0:
    print(type(saving.exception()).__name__)
    try:
        saving.result()
    except CheckpointError:
        print("seen")
try:
    save({"x": torch.ones(2)}, folder / "c")
except CheckpointError as error:
    print(error)
save({"x": torch.ones(2)}, folder / "c")
target = {"x": torch.zeros(2)}
load(target, folder / "c")
assert target["x"].tolist() == [1.0, 1.0]
print("well")
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_an_error_that_some_have_not_seen_is_raised_in_all(processes, tmp_path):
    first, *others = run(UNSEEN, processes, 1, str(tmp_path), SPMDX_TIMEOUT=60)
    assert "process 1 failed: CheckpointError: " in first and first.endswith("well\n"), first
    assert all("a file" in said and said.endswith("well\n") for said in others), others
