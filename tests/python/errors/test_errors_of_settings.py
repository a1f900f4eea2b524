# SPDX-License-Identifier: Apache-2.0
"""The whole messages about topologies, budgets and reports, and those of a process of its own."""

import importlib
import math
import os
import subprocess
import sys

import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, grid, message_of
from spmdx._start.core import load_core
from spmdx.topology import Level, Topology

LEVEL = Level(latency_ns=1)


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


TOPOLOGIES = [
    (
        "no_levels",
        lambda: Topology("x", ()),
        "HERE: Topology: the levels are (). Expected one or more spmdx.topology.Level. Write "
        "(Level(latency_ns=5000),) for links that are all alike.",
    ),
    (
        "levels_none",
        lambda: Topology("x", None),
        "HERE: Topology: the levels are None. Expected one or more spmdx.topology.Level. Write "
        "(Level(latency_ns=5000),) for links that are all alike.",
    ),
    (
        "level_of_a_word",
        lambda: Topology("x", ["fast"]),
        "HERE: Topology: the levels are ('fast',). Expected one or more spmdx.topology.Level. "
        "Write (Level(latency_ns=5000),) for links that are all alike.",
    ),
    (
        "fraction",
        lambda: Topology("x", [Level(latency_ns=1.5)]),
        "HERE: Topology: latency_ns of level 0 is 1.5. Expected an int. Write 500.",
    ),
    (
        "flag",
        lambda: Topology("x", [Level(message_ns=True)]),
        "HERE: Topology: message_ns of level 0 is True. Expected an int. Write 500.",
    ),
    (
        "negative",
        lambda: Topology("x", [Level(picoseconds_per_byte=-1)]),
        "HERE: Topology: picoseconds_per_byte of level 0 is -1. Expected at least 0 and below "
        "2**53. Write 500.",
    ),
    (
        "not_a_number",
        lambda: Topology("x", [Level(latency_ns=math.nan)]),
        "HERE: Topology: latency_ns of level 0 is nan. Expected an int. Write 500.",
    ),
    (
        "named",
        lambda: Topology.named("pigeon"),
        "HERE: Topology.named: no topology is called 'pigeon'. Expected one of 'in-process', "
        "'gloo', 'nvlink', 'infiniband'. Write one of these names, or load a file.",
    ),
    (
        "set_name",
        lambda: spmdx.set_topology("pigeon"),
        "HERE: set_topology: no topology is called 'pigeon'. Expected one of 'in-process', "
        "'gloo', 'nvlink', 'infiniband'. Write one of these names, or load a file.",
    ),
    (
        "set_number",
        lambda: spmdx.set_topology(3),
        "HERE: set_topology: the argument is a int. Expected a spmdx.Topology, its name or a "
        "file. Write 'gloo', or the path of a JSON file.",
    ),
    (
        "missing_file",
        lambda: Topology.load("nowhere.json"),
        "HERE: Topology.load: nowhere.json is no topology: FileNotFoundError: [Errno 2] No such "
        "file or directory: 'nowhere.json'. Expected a JSON file with name and levels. Write one "
        "with Topology.save or spmdx.calibrate.",
    ),
    (
        "one_device",
        lambda: spmdx.calibrate(devices=1),
        "HERE: calibrate: devices is 1. Expected an int of at least 2. Write 8.",
    ),
    (
        "number_as_a_name",
        lambda: Topology(3, (LEVEL,)),
        "HERE: Topology: the name is 3. Expected a string. Write 'measured'.",
    ),
    (
        "set_nothing",
        lambda: spmdx.set_topology(""),
        "HERE: set_topology: no topology is called ''. Expected one of 'in-process', 'gloo', "
        "'nvlink', 'infiniband'. Write one of these names, or load a file.",
    ),
    (
        "file_without_a_name",
        lambda: Topology.load(""),
        "HERE: Topology.load: '' is no topology: FileNotFoundError: [Errno 2] No such file or "
        "directory: ''. Expected a JSON file with name and levels. Write one with Topology.save "
        "or spmdx.calibrate.",
    ),
    (
        "save_nowhere",
        lambda: Topology("x", (LEVEL,)).save(""),
        "HERE: Topology.save: the path is ''. Expected that of a file. Write 'links.json'.",
    ),
    (
        "calibrated_for_a_number",
        lambda: spmdx.calibrate(3),
        "HERE: calibrate: the path is 3. Expected that of a file. Write 'links.json'.",
    ),
    (
        "budget_fraction",
        lambda: spmdx.set_gather_budget(1.5),
        "HERE: set_gather_budget: the budget is 1.5. Expected a whole number of bytes, or None "
        "for no limit. Write 2 * 2**30 for 2 GiB.",
    ),
    (
        "budget_flag",
        lambda: spmdx.set_gather_budget(True),
        "HERE: set_gather_budget: the budget is True. Expected a whole number of bytes, or None "
        "for no limit. Write 2 * 2**30 for 2 GiB.",
    ),
    (
        "budget_negative",
        lambda: spmdx.set_gather_budget(-1),
        "HERE: set_gather_budget: the budget is -1 bytes. Expected 0 or more, and less than "
        "2**63. Write None for no limit.",
    ),
    (
        "budget_too_large",
        lambda: spmdx.set_gather_budget(2**63),
        "HERE: set_gather_budget: the budget is 9223372036854775808 bytes. Expected 0 or more, "
        "and less than 2**63. Write None for no limit.",
    ),
    (
        "named_number",
        lambda: Topology.named(3),
        "HERE: Topology.named: no topology is called '3'. Expected one of 'in-process', 'gloo', "
        "'nvlink', 'infiniband'. Write one of these names, or load a file.",
    ),
]


@pytest.mark.parametrize("call, message", cases(TOPOLOGIES))
def test_a_wrong_setting_is_refused(call, message):
    before = spmdx.get_topology(), spmdx.get_gather_budget()
    assert message_of(spmdx.ShardingError, call) == message
    assert (spmdx.get_topology(), spmdx.get_gather_budget()) == before


FILES = [
    (
        "cut_off",
        "{",
        "bad.json is no topology: JSONDecodeError: Expecting property name enclosed in double "
        "quotes: line 1 column 2 (char 1). Expected a JSON file with name and levels. Write one "
        "with Topology.save or spmdx.calibrate.",
    ),
    (
        "list",
        "[]",
        "bad.json is no topology: TypeError: it holds a list. Expected a JSON file with name and "
        "levels. Write one with Topology.save or spmdx.calibrate.",
    ),
    (
        "no_name",
        '{"levels": []}',
        "bad.json is no topology: KeyError: 'name'. Expected a JSON file with name and levels. "
        "Write one with Topology.save or spmdx.calibrate.",
    ),
    (
        "no_levels",
        '{"name": "x", "levels": []}',
        "bad.json: the levels are (). Expected one or more spmdx.topology.Level. Write "
        "(Level(latency_ns=5000),) for links that are all alike.",
    ),
    (
        "unknown_field",
        '{"name": "x", "levels": [{"speed": 1}]}',
        "bad.json is no topology: TypeError: Level.__init__() got an unexpected keyword argument "
        "'speed'. Expected a JSON file with name and levels. Write one with Topology.save or "
        "spmdx.calibrate.",
    ),
    (
        "fraction",
        '{"name": "x", "levels": [{"latency_ns": 1.5}]}',
        "bad.json: latency_ns of level 0 is 1.5. Expected an int. Write 500.",
    ),
]


@pytest.mark.parametrize("text, message", cases(FILES))
def test_a_wrong_file_is_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text(text)
    found = message_of(spmdx.ShardingError, lambda: spmdx.set_topology("bad.json"))
    assert found == f"HERE: set_topology: {message}"


def test_a_topology_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        Topology("x", (LEVEL,)).save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def a_report():
    return spmdx.explain(spmdx.mark_sharding(device(8), grid(), ("i",)) + 1)


def test_a_report_without_work_is_not_drawn(tmp_path):
    report = spmdx.explain(spmdx.mark_sharding(device(8, 4), grid(), ("i", None)).t())
    assert message_of(spmdx.ShardingError, lambda: report.timeline(tmp_path / "step.png")) == (
        "HERE: timeline: the report has no op that takes time. Expected a program with some. "
        "Explain a step that computes something."
    )


def test_a_report_is_drawn_to_a_file():
    report = a_report()
    assert message_of(spmdx.ShardingError, lambda: report.timeline(3)) == (
        "HERE: timeline: the path is 3. Expected that of a file. Write 'step.png'."
    )


def test_a_picture_wants_matplotlib(tmp_path, monkeypatch):
    report = a_report()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert message_of(ImportError, lambda: report.timeline(tmp_path / "step.png")) == (
        "timeline: matplotlib is not installed. Expected it for pictures. Run "
        "`pip install matplotlib`, or write a Chrome trace: report.timeline('step.json')."
    )


def test_a_core_that_does_not_load_says_how_to_mend_it(monkeypatch):
    def missing(name):
        raise ImportError(f"{name}.so: undefined symbol")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert message_of(ImportError, load_core) == (
        f"the compiled part of spmdx does not load with torch {torch.__version__}: spmdx._C.so: "
        "undefined symbol. Expected it built for this Python and this torch. Rebuild spmdx for "
        "this torch: pip install --no-build-isolation --force-reinstall . in its source folder."
    )


def last_line(code, **environment):
    """What a process of its own says last before it fails."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 1, run.stderr
    return run.stderr.strip().splitlines()[-1]


RULE = "import spmdx; spmdx._C.override_rule('aten.mm', {!r})"
FORK = """
import os, spmdx, torch
torch.ones(2).to("spmdx").add_(1).tolist()
if pid := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
torch.ones(2).to("spmdx").add_(1).tolist()
"""
LAZY = """
import spmdx, torch, torch._lazy.ts_backend
torch._lazy.ts_backend.init()
{}
"""

PROCESSES = [
    (
        "nothing_to_explain",
        "import spmdx; spmdx.explain()",
        "spmdx.errors.ShardingError: <string>:1: explain: no program was compiled yet. Expected "
        "one that ran. Call spmdx.mark_step() first, or explain a tensor that is traced.",
    ),
    (
        "rule_is_fixed",
        RULE.format("linearity=joint"),
        "spmdx.errors.ShardingError: rules are not to be changed. Expected a test of rules. Set "
        "SPMDX_TEST_RULES before the process starts.",
    ),
    (
        "fork",
        FORK,
        "RuntimeError: spmdx was used in a process forked after its first step. The thread that "
        "runs steps exists only in the parent. Keep on the CPU what the processes share, or start "
        "them with the method 'spawn'.",
    ),
    (
        "from_another_device",
        LAZY.format("torch.ones(2, device='lazy').to('spmdx')"),
        "RuntimeError: cannot copy from lazy:0 to spmdx. Copy to the CPU first.",
    ),
    (
        "to_another_device",
        LAZY.format("torch.ones(2).to('spmdx').to('lazy')"),
        "RuntimeError: cannot copy from spmdx to lazy. Copy to the CPU first.",
    ),
]


@pytest.mark.parametrize("code, message", cases(PROCESSES))
def test_a_process_says_what_is_wrong(code, message):
    assert last_line(code) == message


RULES = [
    (
        "linearity",
        "linearity=maybe",
        "spmdx.errors.ShardingError: 'maybe' is no linearity. Expected none, joint, each, "
        "monotone or movement.",
    ),
    (
        "field",
        "colour=red",
        "spmdx.errors.ShardingError: 'colour=red' changes nothing of a rule. Expected "
        "field=value, as letters=*->*.",
    ),
    (
        "no_value",
        "linearity",
        "spmdx.errors.ShardingError: 'linearity' changes nothing of a rule. Expected field=value,"
        " as letters=*->*.",
    ),
]


@pytest.mark.parametrize("changes, message", cases(RULES))
def test_a_wrong_change_of_a_rule_is_refused(changes, message):
    assert last_line(RULE.format(changes), SPMDX_TEST_RULES="1") == message
