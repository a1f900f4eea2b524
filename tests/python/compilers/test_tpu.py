# SPDX-License-Identifier: Apache-2.0
"""PJRT_DEVICE=TPU on machines that have none; and a TPU that XLA's client for the CPU plays.

No TPU has run any of this.
"""

import os
import subprocess
import sys
import time

import pytest
import spmdx
import torch
from messages import message_of
from small_training import OPTIMIZERS, on, training
from spmdx._compiling import cache
from spmdx._targets import tpu
from spmdx._targets.xla import Xla

pytest.importorskip("jaxlib")
from spmdx._targets import pjrt  # noqa: E402

no_tpu = pytest.mark.skipif(bool(tpu.chips()), reason="this machine has a TPU")
NONE_HERE = (
    "PJRT_DEVICE is 'TPU', and this machine has none: no PCI device of Google's that is a TPU of "
    "v3, v4, v5p, v5e, v6e, 7x. Expected one. Write PJRT_DEVICE=CPU, or start the program on a TPU "
    "VM."
)


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", "TPU")


@pytest.fixture
def played(asked, monkeypatch):
    """Four chips on the bus, and a client that copies, as that of a chip has to."""
    monkeypatch.setattr(tpu, "chips", lambda: ["v4"] * 4)
    monkeypatch.setattr(tpu, "_trouble", lambda seconds: "")
    monkeypatch.setattr(pjrt, "tpu", lambda: pjrt.cpu(copies=True))
    yield
    tpu._works.clear()


@pytest.mark.parametrize("told", ["GPU", "CUDA", "tpu v4", "1"])
def test_other_platforms_are_refused(told, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", told)
    assert message_of(spmdx.ShardingError, lambda: spmdx.set_compiler("xla")) == (
        f"HERE: set_compiler: PJRT_DEVICE is {told!r}, for which compiler 'xla' has no client. "
        "Expected 'CPU' or 'TPU'. Unset it, or write PJRT_DEVICE=CPU."
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [("", False), ("CPU", False), ("cpu", False), ("TPU", True), ("tpu", True)],
)
def test_what_the_variable_says(told, expected, monkeypatch):
    monkeypatch.setenv("PJRT_DEVICE", told)
    assert tpu.is_asked_for() == expected


@no_tpu
def test_without_a_tpu_the_program_is_told_so_at_once(asked):
    began = time.monotonic()
    said = message_of(spmdx.ShardingError, lambda: spmdx.set_compiler("xla"))
    assert said == f"HERE: set_compiler: {NONE_HERE}"
    assert time.monotonic() - began < 1
    assert spmdx.compilers.get_compiler() is None


@no_tpu
def test_a_program_that_names_both_in_its_environment_ends_with_the_message():
    said = subprocess.run(
        [sys.executable, "-c", "import torch, spmdx; (torch.ones(2).to('spmdx') + 1).cpu()"],
        env=os.environ | {"PJRT_DEVICE": "TPU", "SPMDX_COMPILER": "xla"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 1 and said.stderr.splitlines()[-1].endswith(NONE_HERE)


@no_tpu
def test_a_kind_of_device_needs_the_variable_and_the_chip(monkeypatch):
    def set_kinds(machine):
        return message_of(
            spmdx.ShardingError, lambda: spmdx.runtime.set_devices([f"xla:{machine}"] * 8)
        )

    one = "Expected the same, since a process has one client of XLA's."
    assert set_kinds("tpu") == (
        "HERE: set_devices: devices of kind 'xla:tpu' are asked for, and PJRT_DEVICE is CPU, or "
        f"not set. {one} Write PJRT_DEVICE=TPU."
    )
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    assert set_kinds("tpu") == f"HERE: set_devices: {NONE_HERE}"
    assert set_kinds("cpu") == (
        "HERE: set_devices: devices of kind 'xla:cpu' are asked for, and PJRT_DEVICE is TPU. "
        f"{one} Write PJRT_DEVICE=CPU."
    )


def on_a_bus(system, *devices):
    for place, (vendor, device) in enumerate(devices):
        folder = system / "bus" / "pci" / "devices" / f"0000:00:{place:02}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        if device:
            (folder / "device").write_text(f"{device}\n")
    return system


def test_chips_are_found_on_the_bus(tmp_path):
    network, unknown, damaged = ("0x1ae0", "0x0042"), ("0x10de", "0x0063"), ("0x1ae0", "")
    rows = [network, ("0x1ae0", "0x005e"), unknown, damaged, ("0x1ae0", "0x0063")]
    assert tpu.chips(on_a_bus(tmp_path, *rows)) == ["v4", "v5e"]
    assert tpu.chips(tmp_path / "none") == []


@no_tpu
def test_a_chip_that_libtpu_cannot_use_is_an_error_and_ends_nothing(asked, monkeypatch):
    """libtpu itself, in a process of its own, on this machine."""
    pytest.importorskip("libtpu")
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")  # it would ask a server of Google's for minutes
    monkeypatch.setattr(tpu, "chips", lambda: ["v4"])
    said = message_of(spmdx.ShardingError, lambda: spmdx.set_compiler("xla"))
    assert said.startswith(
        "HERE: set_compiler: PJRT_DEVICE is 'TPU', and this machine has 1 (v4), but libtpu cannot "
        "use it: it ended with status 1 ("
    )
    assert "NOT_FOUND" in said
    assert said.endswith(
        "). Expected a TPU that no other process has. End that, or write PJRT_DEVICE=CPU."
    )
    assert not tpu._works.is_set()


def test_libtpu_that_does_not_begin_is_not_waited_for(asked, monkeypatch):
    monkeypatch.setattr(tpu, "chips", lambda: ["v4"])
    monkeypatch.setattr(tpu, "library", lambda: "")
    monkeypatch.setattr(tpu, "_SECONDS", 0.05)
    said = message_of(spmdx.ShardingError, lambda: spmdx.set_compiler("xla"))
    assert "libtpu cannot use it: it had not begun after 0.05 s. Expected a TPU" in said


def test_without_libtpu_it_says_what_to_install(asked, monkeypatch):
    monkeypatch.setattr(tpu, "chips", lambda: ["v4"])
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(ImportError, match="pip install --no-deps libtpu"):
        spmdx.set_compiler("xla")


def test_a_tpu_that_works_is_not_tried_again(played, monkeypatch):
    Xla()
    monkeypatch.setattr(tpu, "_trouble", lambda seconds: "this process has it")
    Xla()


def test_kernels_are_kept_by_platform_and_f64_is_left(played, monkeypatch):
    assert Xla().version().split()[1:2] == ["tpu"] and Xla().version().endswith(" v4")
    assert "f64" not in Xla().dtypes
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    assert Xla().version().split()[1] == "cpu" and "f64" in Xla().dtypes


def test_a_chip_of_no_profile_needs_one(played, monkeypatch):
    monkeypatch.setattr(tpu, "chips", lambda: ["v6e"])
    said = message_of(spmdx.ShardingError, lambda: spmdx.runtime.set_devices(["xla:tpu"] * 8))
    assert "no profile of hardware is known of this machine's tpu-v6e. Expected one of a100" in said
    assert "Write 'xla:tpu@tpu-v5p', or hardware=" in said
    spmdx.runtime.set_devices(["xla:tpu@tpu-v5p"] * 8)
    spmdx.runtime.set_devices([])


def losses(place):
    return torch.tensor(training(place, OPTIMIZERS["adamw"], rows=16, dtype=torch.float32)[0])


@pytest.mark.parametrize("kinds", [["xla:tpu"] * 8, ["cpu"] * 4 + ["xla:tpu"] * 4], ids=len)
def test_training_on_a_tpu_that_is_played(played, kinds):
    spmdx.runtime.set_devices(kinds, compile_now=True)
    mesh = spmdx.Mesh(range(8), (8,), ("data",))
    try:
        found = losses(on(mesh, marks_parameters=False))
        torch.testing.assert_close(found, losses(lambda *given: given))
        rows = [row for row in spmdx.explain().segments.segments if row.state == "compiled"]
        assert {row.compiler for row in rows} == {"xla"}
        names = {path.name for path in (cache.root() / "segments" / "xla").glob("*/*")}
        assert names == {"segment.mlir", "manifest.json"}  # the program's process made the rest
    finally:
        spmdx.runtime.set_devices([])


def test_plans_reckon_with_the_chip_and_with_its_own_memory(played):
    spmdx.runtime.set_devices(["cpu@tpu-v4"] * 4 + ["xla:tpu"] * 4)
    try:
        near, far = spmdx._kinds.devices.kinds()[0], spmdx._kinds.devices.kinds()[-1]
        assert far.hardware == near.hardware and (near.own_memory, far.own_memory) == (False, True)
    finally:
        spmdx.runtime.set_devices([])
