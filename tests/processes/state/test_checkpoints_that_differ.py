# SPDX-License-Identifier: Apache-2.0
"""Processes that save or load different things are told before a byte is written or read."""

import os
import re

import pytest
from launch import run


def told(what, processes, devices, tmp_path):
    """The errors of every process, which all are told alike but for the line."""
    said = run("checkpoint_differ.py", processes, devices, what, str(tmp_path))
    errors = [re.findall(r"^told: \S+: \w+: (.*)$", out, re.MULTILINE) for out in said]
    assert all(of_one == errors[0] for of_one in errors)
    return errors[0]


@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (3, 2), (4, 2)])
def test_the_order_of_a_dict_does_not_matter(processes, devices, tmp_path):
    said = run("checkpoint_differ.py", processes, devices, "order", str(tmp_path))
    assert len(set(said)) == 1


DIFFERENCES = {
    "names": r"process {last} lacks log, which process 0 has",
    "more": r"process 0 lacks extra, more, which process {last} has",
    "spec": r"'t' has the place .*\(None\)\) .*in process {last}, and .*'model'.* in process 0",
    "shape": r"'log' has the shape \[3\] in process {last}, and \[2\] in process 0",
    "dtype": r"'log' has the dtype torch.float64 in process {last}, and torch.float32 in",
    "kind": r"'step' has the kind a tensor in process {last}, and a value that is no tensor in",
}


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("what", DIFFERENCES)
def test_what_differs_is_told_with_its_name_in_all_processes(what, processes, tmp_path):
    errors = told(what, processes, 2, tmp_path)
    assert len(errors) == 3  # of a save, one in the background and a load
    for error in errors:
        said = DIFFERENCES[what].format(last=processes - 1)
        assert re.search(said + r".*\. Expected the same entries in every process.* Give", error)
    assert os.listdir(tmp_path) == ["c"]


def test_paths_that_differ(tmp_path):
    load, save, calls, strict = told("paths", 3, 2, tmp_path)
    assert f"process 1 calls load: {tmp_path}/1, strict=True, and process 0 calls load: " in load
    assert (
        f"process 1 calls save: {tmp_path}/new1, and process 0 calls save: {tmp_path}/new0." in save
    )
    assert f"process 2 calls load: {tmp_path}/0, strict=True, and process 0 calls save: " in calls
    assert f"process 2 calls load: {tmp_path}/0, strict=False, and process 0 calls load: " in strict
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


def test_a_path_that_leads_to_different_places(tmp_path):
    said = run("checkpoint_differ.py", 2, 2, "mounts", str(tmp_path))
    for process, out in enumerate(said):
        load, save, saving = (line for line in out.splitlines() if line.startswith("told: "))
        assert "process 1 finds /proc/self/cwd/c/spmdx.manifest.json with SHA-256 " in load
        for error in save, saving:
            assert ("process 1 failed: " in error) is (process == 0)
            assert "process 1 does not see /proc/self/cwd/.c.saving-" in error
    for process in range(2):
        assert os.listdir(tmp_path / str(process)) == ["c"]


def test_weights_that_differ(tmp_path):
    said = run("checkpoint_differ.py", 2, 2, "safetensors", str(tmp_path))
    for out in said:
        path, names, saved, new, files = re.findall("^told: (.*)$", out, re.MULTILINE)
        assert f"process 1 calls load_safetensors: {tmp_path}/1/w" in path
        assert "process 1 lacks x, which process 0 has" in names
        assert "process 1 lacks x, which process 0 has" in saved
        assert f"process 1 calls save_safetensors: {tmp_path}/new1" in new
        assert "process 1 finds files with SHA-256 " in files
    assert sorted(os.listdir(tmp_path)) == ["0", "1"]


@pytest.mark.parametrize(("processes", "devices"), [(2, 1), (3, 2), (4, 2)])
def test_a_new_optimizer_is_filled_whatever_memory_held(processes, devices, tmp_path):
    said = run("checkpoint_differ.py", processes, devices, "optimizer", str(tmp_path))
    assert said == ["equal\n"] * processes
