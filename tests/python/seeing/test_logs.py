# SPDX-License-Identifier: Apache-2.0
"""The loggers say what was planned, saved and loaded, and are silent unless they are asked."""

import logging
import os
import re
import subprocess
import sys

import pytest
import spmdx
import torch
from spmdx._start import settings


@pytest.fixture(scope="module", autouse=True)
def devices():
    if spmdx.runtime.global_runtime_device_count() < 8:
        spmdx.runtime.set_device_count(8)


def messages(caplog, name):
    return [r.getMessage() for r in caplog.records if r.name == name]


def test_a_plan_is_told_once_with_what_explain_says(caplog):
    mesh = spmdx.Mesh(range(4), (4,), ("x",))
    spmdx.sync(wait=True)
    spmdx._C.clear_cache()
    with caplog.at_level(logging.INFO, "spmdx.planning"):
        for _ in range(3):
            x = spmdx.mark_sharding(torch.ones(16, 7).to("spmdx"), mesh, ("x", None))
            assert x.exp().sum().item() == pytest.approx(112 * 2.718281828)
    (said,) = messages(caplog, "spmdx.planning")
    report = spmdx.explain()
    found = re.fullmatch(
        r"planned (\d+) ops for 4 devices in [\d.]+ s: (\d+) collectives, (\d+) bytes over the "
        r"wire and (\d+) bytes of memory a device",
        said,
    )
    assert found and int(found[1]) >= 2
    assert int(found[2]) == len(report.collectives) == 1
    assert (int(found[3]), int(found[4])) == (report.wire_bytes, report.peak_bytes)


def test_nothing_is_said_of_plans_that_are_known(caplog):
    x = torch.ones(3).to("spmdx")
    assert x.cosh().sum().item() > 0
    with caplog.at_level(logging.INFO, "spmdx"):
        assert x.cosh().sum().item() > 0
    assert messages(caplog, "spmdx.planning") == []


def test_saves_and_loads_are_told(caplog, tmp_path):
    layer = torch.nn.Linear(8, 4).to("spmdx")
    with caplog.at_level(logging.INFO, "spmdx.checkpoint"):
        spmdx.checkpoint.save(layer.state_dict(), tmp_path / "one")
        spmdx.checkpoint.load(layer.state_dict(), tmp_path / "one")
        spmdx.checkpoint.save_safetensors(layer, tmp_path / "m.safetensors")
        spmdx.checkpoint.load_safetensors(layer, tmp_path / "m.safetensors")
    said = [re.sub(r"[\d.]+ s$", "T s", text) for text in messages(caplog, "spmdx.checkpoint")]
    assert said == [
        f"saved {tmp_path / 'one'}: this process wrote 144 bytes, in T s",
        f"loaded 2 tensors from {tmp_path / 'one'} in T s",
        f"saved {tmp_path / 'm.safetensors'}: 1 files, in T s",
        f"loaded 2 tensors from {tmp_path / 'm.safetensors'} in T s",
    ]


def test_steps_are_told_to_who_wants_all(caplog):
    with caplog.at_level(logging.DEBUG, "spmdx.running"):
        spmdx.mark_step()
        spmdx.sync(wait=True)
        spmdx.runtime.recover()
    assert messages(caplog, "spmdx.running") == [
        "mark_step",
        "sync, which waits",
        "recovered: what had failed is undone",
    ]


PROGRAM = "import torch, spmdx; print(torch.ones(3).to('spmdx').exp().sum().item() > 0)"


def run(**environment):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_a_program_is_silent_unless_it_asks():
    assert (run().stdout, run().stderr) == ("True\n", "")
    loud = run(SPMDX_LOG="info")
    assert loud.stdout == "True\n"
    (line,) = loud.stderr.splitlines()
    assert re.fullmatch(r"\S+ \S+ spmdx\.planning: planned \d+ ops for 1 devices in .*", line)


def test_a_setting_that_means_nothing_is_refused():
    with pytest.raises(ValueError, match="SPMDX_LOG is 'loud', which is no level of logging"):
        settings.wanted_log({"SPMDX_LOG": "loud"})
    with pytest.raises(ValueError, match="SPMDX_PROGRESS is 'on', which is no way to show"):
        settings.check_progress({"SPMDX_PROGRESS": "on"})
