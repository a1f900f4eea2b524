# SPDX-License-Identifier: Apache-2.0
"""A checkpoint appears as a whole or not at all; saves in the background lose nothing."""

import os
import threading
import warnings
from functools import partial

import pytest
import spmdx
import torch
from checkpoints import in_threads, mesh_of, run_python
from messages import eight_devices
from spmdx._checkpoint import save as checkpoint_save
from spmdx._checkpoint.format import folder as checkpoint_folder
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


@pytest.mark.parametrize("swaps", [True, False])
@pytest.mark.parametrize("filled", ["with files", "empty", "a checkpoint", "marked", "a link"])
def test_folders_that_look_like_ours_are_left_alone(filled, swaps, tmp_path, monkeypatch):
    if not swaps:
        monkeypatch.setattr(checkpoint_folder, "_LIBC", None)
    mine = [".c.previous", ".c.saving", ".c.saving-0123abcd", ".c.previous-0123abcd"]
    (tmp_path / "elsewhere").mkdir()
    for name in mine:
        if filled == "a link":
            (tmp_path / name).symlink_to(tmp_path / "elsewhere")
            continue
        (tmp_path / name).mkdir()
        if filled == "with files":
            (tmp_path / name / "precious").write_text("mine")
        elif filled == "a checkpoint":
            save(state(7), tmp_path / name)
        elif filled == "marked":  # a copy of what a killed save left, under another name
            (tmp_path / name / checkpoint_folder.MARK).write_text("fedcba9876543210")
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        load(state(0), tmp_path / "c")  # none of them is taken for the one before
    for step in (1, 2):
        _, text = told(lambda step=step: save(state(step), tmp_path / "c"))
        assert text == "" and loaded(tmp_path / "c") == step
    async_save(state(3), tmp_path / "c").result()
    assert names(tmp_path) == sorted([*mine, "c", "elsewhere"]) and loaded(tmp_path / "c") == 3
    for name in mine:
        if filled == "with files":
            assert (tmp_path / name / "precious").read_text() == "mine"
        elif filled == "a checkpoint":
            assert loaded(tmp_path / name) == 7


def test_a_folder_in_a_checkpoint_is_never_removed_whatever_its_name(tmp_path):
    save(state(1), tmp_path / "c")
    (tmp_path / "c" / "mine.distcp").mkdir()
    with pytest.raises(CheckpointError, match="mine.distcp is no part of a checkpoint"):
        save(state(2), tmp_path / "c")
    assert loaded(tmp_path / "c") == 1


@pytest.mark.parametrize("records", ["lost", "twice", "of a cut file"])
def test_a_save_proves_that_all_was_written_before_it_replaces(records, tmp_path, monkeypatch):
    save(state(1), tmp_path / "c")
    original = checkpoint_save._write_own

    def wrong(folder, snap):
        written = original(folder, snap)
        if records == "lost":
            return written[:-1]
        if records == "twice":
            return [*written[:-1], written[-2]]
        os.truncate(folder / written[0][3], 100)
        return written

    monkeypatch.setattr(checkpoint_save, "_write_own", wrong)
    with pytest.raises(CheckpointError, match="is no checkpoint: .* Expected every element once"):
        save(state(2), tmp_path / "c")
    assert names(tmp_path) == ["c"] and loaded(tmp_path / "c") == 1


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


@pytest.mark.on_the_cpu("CUDA cannot be used after a fork")
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


def at_once(*acts):
    """What the threads raise that do these things at once."""
    errors = []

    def run(act):
        try:
            act()
        except Exception as error:
            errors.append(error)

    in_threads(run, acts)
    return errors


SAVES = {
    "save": (save, load),
    "async_save": (lambda state, path: async_save(state, path).result(), load),
    "safetensors": (spmdx.checkpoint.save_safetensors, spmdx.checkpoint.load_safetensors),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", SAVES)
def test_threads_that_save_to_one_path_take_turns(tmp_path, way):
    write, read = SAVES[way]

    def made(value):
        return {"a": torch.full((500, 400), value), "b": torch.full((300, 200), value)}

    targets = [made(-1.0) for _ in range(3)]
    write(made(0.0), tmp_path / "c")
    writes = [partial(write, made(float(i)), tmp_path / "c") for i in range(1, 6)]
    reads = [partial(read, target, tmp_path / "c") for target in targets[:2]]
    assert at_once(*writes, *reads) == []
    read(targets[2], tmp_path / "c")
    for target in targets:
        found = {value for tensor in target.values() for value in tensor.unique().tolist()}
        assert len(found) == 1 and found <= set(range(6))
    assert names(tmp_path) == ["c"]


def test_the_interpreter_ends_after_the_save(tmp_path):
    code = (
        "import sys\nfrom test_checkpoint_folder import *\n"
        "import time\noriginal = checkpoint_save._write_own\n"
        "def slow(*a):\n    time.sleep(1)\n    return original(*a)\n"
        "checkpoint_save._write_own = slow\nasync_save(state(6), sys.argv[1])\n"
    )
    run_python(code, tmp_path / "c")
    assert loaded(tmp_path / "c") == 6
