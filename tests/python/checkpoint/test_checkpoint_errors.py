# SPDX-License-Identifier: Apache-2.0
"""What does not fit is said with its name, both sides and how to mend it; nothing changes."""

import gc
import os
import re
import signal
import time
import weakref

import pytest
import spmdx
import torch
from checkpoints import mesh_of
from messages import eight_devices, message_of
from spmdx.checkpoint import CheckpointError, load, save

eight_devices()


@pytest.fixture
def folder(tmp_path):
    w = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh_of(8), ("a", None))
    save({"w": w, "step": 3, "s": torch.tensor(2.0)}, tmp_path / "c")
    return tmp_path / "c"


def refused(folder, state, **options):
    before = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in state.items()}
    text = message_of(CheckpointError, lambda: load(state, folder, **options))
    for name, value in before.items():
        same = state[name] == value
        assert same.all().item() if isinstance(value, torch.Tensor) else same
    return text.replace(str(folder), "FOLDER")


def state(**changes):
    return {"w": torch.zeros(8, 4), "step": 0, "s": torch.tensor(0.0)} | changes


def test_missing_and_unexpected_names(folder):
    assert refused(folder, {"w": torch.zeros(8, 4), "v": torch.zeros(2), "step": 0}) == (
        "HERE: load: FOLDER lacks v. It has, and the state lacks, s. Expected the names of the "
        "state. Make the state as it was when it was saved, or call with strict=False to pass "
        "over them."
    )
    many = {f"n{i}": 0 for i in range(9)}
    assert "FOLDER lacks n0, n1, n2, n3, n4 and 4 more. Expected" in refused(folder, state(**many))
    target = {"w": torch.zeros(8, 4), "v": 5}
    assert load(target, folder, strict=False) == (["v"], ["step", "s"])
    assert target["v"] == 5 and target["w"].unique().tolist() == [1.0]


def test_shapes(folder):
    assert refused(folder, state(w=torch.zeros(8, 5).to("spmdx"))) == (
        "HERE: load: w is a tensor of shape (8, 5) and torch.float32 on spmdx:0 in the state, but "
        "a tensor of shape (8, 4) and torch.float32 in FOLDER. Expected the same. Make it of the "
        "saved shape."
    )
    assert "shape (1,) and" in refused(folder, state(s=torch.zeros(1)), strict=False)


def test_dtypes(folder):
    assert refused(folder, state(w=torch.zeros(8, 4).half())) == (
        "HERE: load: w is a tensor of shape (8, 4) and torch.float16 on cpu in the state, but a "
        "tensor of shape (8, 4) and torch.float32 in FOLDER. Expected the same. Load into a "
        "tensor of torch.float32 and convert that with .to(torch.float16)."
    )


def test_kinds(folder):
    assert refused(folder, state(s=2.0)) == (
        "HERE: load: s is a float, which is no tensor in the state, but a tensor of shape () and "
        "torch.float32 in FOLDER. Expected the same. Give an entry of the saved kind."
    )
    assert refused(folder, state(step=torch.tensor(3))) == (
        "HERE: load: step is a tensor of shape () and torch.int64 on cpu in the state, but a value "
        "that is no tensor in FOLDER. Expected the same. Give an entry of the saved kind."
    )
    with pytest.raises(CheckpointError, match="on meta .*to_empty"):
        load(state(w=torch.zeros(8, 4, device="meta")), folder)


def test_no_checkpoint(tmp_path):
    assert refused(tmp_path / "none", {"a": 0}) == (
        "HERE: load: there is no checkpoint at FOLDER/none. Expected a folder with "
        "spmdx.manifest.json, or with .metadata of torch.distributed.checkpoint. Give the path "
        "that was saved to."
    ).replace("FOLDER/none", "FOLDER")


def damage(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


def test_damage_is_said_with_file_and_tensor(folder):
    ones = torch.ones(2, 4).numpy().tobytes()
    damage(folder, "__0_0.distcp", lambda b: b.replace(ones, bytes(len(ones)), 1))
    text = refused(folder, state())
    assert re.fullmatch(
        r"HERE: load: w is damaged in FOLDER/__0_0.distcp, bytes \d+ to \d+. Expected the bytes "
        "that were saved. Load another checkpoint, or copy this one again from where it is whole.",
        text,
    )


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("__0_0.distcp", lambda b: b[:-1], "has .* bytes. Expected .*: it was cut off"),
        (".metadata", lambda b: b[:-1] + b"x", "/.metadata is damaged or belongs to another"),
        ("spmdx.manifest.json", lambda b: b.replace(b"w", b"v"), "its checksum does not fit"),
        ("spmdx.manifest.json", lambda b: b"[]", "damaged or of another version"),
        ("spmdx.manifest.json", lambda b: b"[" * 100000, "damaged or of another version"),
    ],
)
def test_damaged_files(name, change, said, folder):
    damage(folder, name, change)
    assert re.search(said, refused(folder, state()))


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata"])
def test_missing_files(name, folder):
    (folder / name).unlink()
    assert f"FOLDER/{name} is missing. Expected a file of" in refused(folder, state())


def test_a_read_that_fails_midway_says_that_the_state_is_mixed(folder, monkeypatch):
    def fail(*_):
        raise CheckpointError("the disk is gone.")

    monkeypatch.setattr("spmdx._checkpoint.load.read_tensor_chunk", fail)
    with pytest.raises(CheckpointError, match="gone. A part of the state is overwritten: load"):
        load(state(w=torch.zeros(8, 4).to("spmdx")), folder)


class Odd:
    pass


def saving(tmp_path, value):
    return message_of(CheckpointError, lambda: save(value, tmp_path / "c"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"x": {"odd": Odd()}}, r"x.odd, a Odd, cannot be saved so that loading it is safe: "),
        ({"f": len}, r"f, a builtin_function_or_method, cannot be saved so that loading it is "),
        ({"t": torch.eye(2).to_sparse()}, r"t is a Tensor on cpu with layout torch.sparse_coo. "),
        ({"t": torch.ones(2, device="meta")}, r"t is a Tensor on meta with layout torch.strided."),
        ({"a": {"b": 1}, "a.b": 2}, r"two entries of the state are called a.b. Expected one. "),
        ([1, 2], r"the state is a list. Expected a dict. Write "),
    ],
)
def test_what_cannot_be_saved(value, said, tmp_path):
    text = saving(tmp_path, value)
    assert text.startswith("HERE: save: " + said.split(r"\.")[0]) and "Expected" in text
    assert not list(tmp_path.iterdir())


def test_a_tuple_with_tensors_of_the_device(tmp_path):
    text = saving(tmp_path, {"pair": (torch.ones(2).to("spmdx"), 1)})
    assert "pair, a tuple, cannot be saved" in text and "a tensor on device 'spmdx'" in text
    save({"pair": (torch.ones(2), 1)}, tmp_path / "c")
    target = {"pair": None}
    load(target, tmp_path / "c")
    assert target["pair"][0].tolist() == [1.0, 1.0] and target["pair"][1] == 1


def test_bytes_are_values(tmp_path):
    values = {"b": b"\0\xff" * 9, "a": bytearray(b"\0\xff" * 9), "l": [bytearray(), 3]}
    save(values, tmp_path / "c")
    target = dict.fromkeys(values, 0)
    load(target, tmp_path / "c")
    assert target == values
    assert "a bytearray of any size" in saving(tmp_path, {"b": [bytearray(b"x"), 10**9]})


def test_files_of_another_save_are_noticed(folder, tmp_path):
    save({"w": torch.zeros(8, 4), "step": 3, "s": torch.tensor(2.0)}, tmp_path / "d")
    (folder / ".metadata").write_bytes((tmp_path / "d" / ".metadata").read_bytes())
    assert "belongs to another checkpoint" in refused(folder, state())


@pytest.mark.parametrize(
    "call, why",
    [
        (lambda folder: load({"other": torch.zeros(1)}, folder), "lacks other"),
        (lambda folder: save({"a": object()}, folder / "x"), "cannot be saved"),
    ],
)
def test_an_error_does_not_keep_alive_what_its_callers_held(folder, call, why):
    class Held:
        pass

    seen = []

    def fails():
        held = Held()
        seen.append(weakref.ref(held))
        call(folder)

    gc.disable()
    try:
        try:
            fails()
        except CheckpointError as error:
            assert why in str(error)
        assert seen[0]() is None
    finally:
        gc.enable()


def test_a_target_that_cannot_be_written_is_said_to_leave_a_mixture(folder):
    w = spmdx.mark_sharding(torch.zeros(8, 4).to("spmdx"), mesh_of(8), ("a", None))
    repeated = torch.zeros(()).to("spmdx").expand(1, 1)
    save({"w": w, "r": torch.ones(2, 3)}, folder.parent / "d")
    with pytest.raises(CheckpointError, match="A part of the state is overwritten: load again"):
        load({"w": w, "r": repeated.expand(2, 3)}, folder.parent / "d")


def test_ctrl_c_while_a_state_is_filled_says_what_it_leaves(folder, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("spmdx._checkpoint.load.fresh", interrupted)
    target = {"w": state()["w"].to("spmdx"), "s": torch.tensor(0.0), "step": 0}
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="is overwritten"):
        load(target, folder)


@pytest.fixture
def ctrl_c():
    """As in a program in the foreground: what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def drops_ctrl_c(kept):
    """What code in C does that asks whether an object has a method: Ctrl-C comes, and is lost."""

    def call(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            if kept:
                raise RuntimeError("its course") from None
        raise AttributeError("an object has no attribute 'read'")

    return call


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("function", ["load", "save"])
def test_ctrl_c_stays_ctrl_c_where_torch_loses_it(folder, monkeypatch, ctrl_c, function, kept):
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(torch, function, drops_ctrl_c(kept))
    with pytest.raises(KeyboardInterrupt):
        load(state(), folder) if function == "load" else save(state(), folder)
    assert signal.getsignal(signal.SIGINT) is handler
    monkeypatch.undo()
    target = state()
    load(target, folder)
    assert target["step"] == 3


def test_an_error_of_a_save_that_ctrl_c_led_to_is_told(folder):
    with pytest.raises(CheckpointError, match="is no part of a checkpoint"):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            (folder / "notes.txt").touch()
            save(state(), folder)


def test_a_signal_that_the_program_takes_itself_breaks_nothing_off(folder, monkeypatch):
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    loads = torch.load

    def call(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return loads(*arguments, **options)

    monkeypatch.setattr(torch, "load", call)
    try:
        target = state()
        load(target, folder)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard and target["step"] == 3
