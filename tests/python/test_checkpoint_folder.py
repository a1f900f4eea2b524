# SPDX-License-Identifier: Apache-2.0
"""A checkpoint appears as a whole or not at all; saves in the background lose nothing."""

import os
import threading
import warnings

import pytest
import spmdx
import torch
from checkpoints import mesh_of, run_python
from messages import eight_devices
from spmdx import checkpoint_folder, checkpoint_save
from spmdx.checkpoint import CheckpointError, async_save, load, save

eight_devices()


def state(fill):
    x = torch.full((16, 4), float(fill)).to("spmdx")
    return {"x": spmdx.mark_sharding(x, mesh_of(8), ("a", "b")), "step": fill}


def loaded(path):
    target = state(0)
    load(target, path)
    assert target["x"].cpu().unique().tolist() == [float(target["step"])]
    return target["step"]


def names(folder):
    return sorted(os.listdir(folder))


def test_a_save_replaces_the_one_before_and_leaves_nothing_else(tmp_path):
    for step in (1, 2, 3):
        save(state(step), tmp_path / "deep" / "c")
        assert loaded(tmp_path / "deep" / "c") == step
    assert names(tmp_path / "deep") == ["c"]
    assert names(tmp_path / "deep" / "c") == [".metadata", "__0_0.distcp", "spmdx.manifest.json"]
    os.mkdir(tmp_path / "empty")
    save(state(4), tmp_path / "empty")
    assert loaded(tmp_path / "empty") == 4


@pytest.mark.parametrize("kind", ["a file in it", "a folder in it", "a file", "a link"])
def test_what_is_no_checkpoint_is_never_removed(kind, tmp_path):
    path = tmp_path / "c"
    if kind == "a file":
        path.write_text("precious")
    elif kind == "a link":
        (tmp_path / "other").mkdir()
        path.symlink_to(tmp_path / "other")
    else:
        save(state(1), path)
        mine = path / "precious"
        mine.mkdir() if kind == "a folder in it" else mine.write_text("precious")
    with pytest.raises(CheckpointError, match="is no part of a checkpoint.* Save to another path"):
        save(state(2), path)
    assert names(tmp_path) == (["c", "other"] if kind == "a link" else ["c"])
    assert kind.startswith("a file in") is (path / "precious").is_file()


KILLED = """
import torch.distributed.checkpoint  # before anything counts
from test_checkpoint_folder import *
import sys
for folder, way, where, count in zip(*[iter(sys.argv[1:])] * 4):
    if os.fork():  # nothing ran yet, so nothing is lost
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 9, (where, count)
        continue
    if way == "in two steps":
        checkpoint_folder._LIBC = None
    save(state(1), folder)
    new = state(2)
    module = torch if where == "torch.save" else os
    original, calls = getattr(module, where.split(".")[1]), []
    def dying(*args, **kwargs):
        calls.append(1)
        if len(calls) == int(count):
            os._exit(9)
        return original(*args, **kwargs)
    setattr(module, where.split(".")[1], dying)
    save(new, folder)
"""
# How the folders change places, where the save dies, at which call of it, and which checkpoint is
# there then, in its place or not.
DEATHS = [
    ("at once", "torch.save", 5, 1, True),  # in the middle of the data
    ("at once", "os.fsync", 1, 1, True),  # at the end of the data
    ("at once", "os.fsync", 3, 1, True),  # the manifest is written, the disk may not have it
    ("at once", "os.fsync", 5, 2, True),  # the new one is in place
    ("in two steps", "os.rename", 1, 1, True),  # all is written
    ("in two steps", "os.rename", 2, 1, False),  # the old one is out of the way
    ("in two steps", "os.fsync", 5, 2, True),  # the new one is in place
]


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, " ".join(str(w.message) for w in caught)


def test_a_killed_save_leaves_the_checkpoint_before_or_the_new_one(tmp_path):
    paths = [tmp_path / str(i) / "c" for i in range(len(DEATHS))]
    deaths = [(path, *death[:3]) for path, death in zip(paths, DEATHS, strict=True)]
    run_python(KILLED, *(word for death in deaths for word in death))
    for path, (*_, left, in_place) in zip(paths, DEATHS, strict=True):
        unfinished = [name for name in names(path.parent) if ".saving-" in name]
        assert bool(unfinished) is (left == 1)
        assert path.exists() is in_place
        found, text = told(lambda path=path: loaded(path))
        assert found == left
        assert ("did not end: it is not read" in text) is bool(unfinished)
        back = "the checkpoint before it is back" in text
        assert back is not in_place
        _, text = told(lambda path=path: save(state(3), path))
        assert ("did not end: it is removed" in text) is bool(unfinished)
        assert names(path.parent) == ["c"] and loaded(path) == 3


@pytest.mark.parametrize("count", [1, 2])
def test_a_save_that_fails_leaves_the_checkpoint_before(count, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_folder, "_LIBC", None)  # one that cannot swap folders
    save(state(1), tmp_path / "c")
    original, calls = os.rename, []

    def failing(*args):
        calls.append(args)
        if len(calls) == count:
            raise OSError(28, "No space left on device")
        return original(*args)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(CheckpointError, match="No space left on device.* and try again"):
        save(state(2), tmp_path / "c")
    assert names(tmp_path) == ["c"] and loaded(tmp_path / "c") == 1


def test_a_background_save_holds_what_was_there_when_it_was_called(tmp_path):
    current = state(1)
    current["cpu"], current["list"] = torch.ones(3), [1, 2]
    saving = async_save(current, tmp_path / "c")
    with torch.no_grad():
        current["x"].mul_(5)
    current["cpu"].zero_()
    current["list"].append(3)
    spmdx.mark_step()
    assert saving.result() is None and saving.done()
    target = state(0) | {"cpu": torch.zeros(3), "list": []}
    load(target, tmp_path / "c")
    assert target["x"].cpu().unique().tolist() == [1.0] and target["list"] == [1, 2]
    assert target["cpu"].tolist() == [1.0] * 3


def test_the_program_goes_on_while_a_save_runs_and_the_next_save_waits(tmp_path, monkeypatch):
    may_write, order = threading.Event(), []
    original = checkpoint_save._write_own

    def slow(folder, snap):
        assert may_write.wait(60)
        order.append(folder.name.split(".")[1])
        return original(folder, snap)

    monkeypatch.setattr(checkpoint_save, "_write_own", slow)
    first = async_save(state(1), tmp_path / "first")
    assert not first.done() and (torch.ones(3).to("spmdx") + 1).sum().item() == 6.0
    with pytest.raises(TimeoutError):
        first.result(timeout=0.01)
    threading.Timer(0.2, may_write.set).start()
    second = async_save(state(2), tmp_path / "second")
    assert first.done()
    save(state(3), tmp_path / "third")
    assert second.done() and order == ["first", "second", "third"]
    assert [loaded(tmp_path / name) for name in order] == [1, 2, 3]


def failing_save(path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patched.setattr(checkpoint_save, "_write_own", fail)
        saving = async_save(state(1), path)
        assert saving.exception(60) is not None
        for thread in threading.enumerate():
            if thread.name == "spmdx-checkpoint":
                thread.join()
    assert any("failed in the background" in str(w.message) for w in told)
    return saving


def test_an_error_of_a_background_save_surfaces_once(tmp_path, monkeypatch):
    saving = failing_save(tmp_path / "c", monkeypatch)
    with pytest.raises(CheckpointError, match="No space left on device"):
        saving.result()
    save(state(2), tmp_path / "c")  # it was seen
    failing_save(tmp_path / "c", monkeypatch)
    assert loaded(tmp_path / "c") == 2
    with pytest.raises(CheckpointError, match="save: .*No space left on device"):
        save(state(3), tmp_path / "c")
    save(state(4), tmp_path / "c")
    assert loaded(tmp_path / "c") == 4 and names(tmp_path) == ["c"]


def test_the_interpreter_ends_after_the_save(tmp_path):
    code = (
        "import sys\nfrom test_checkpoint_folder import *\n"
        "import time\noriginal = checkpoint_save._write_own\n"
        "def slow(*a):\n    time.sleep(1)\n    return original(*a)\n"
        "checkpoint_save._write_own = slow\nasync_save(state(6), sys.argv[1])\n"
    )
    run_python(code, tmp_path / "c")
    assert loaded(tmp_path / "c") == 6
