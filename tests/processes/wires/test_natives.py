# SPDX-License-Identifier: Apache-2.0
"""Native collectives make of every move what messages make of it."""

import json

import pytest
from launch import Running, run

WORLDS = [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (8, 1), (8, 2)]


def played(
    processes: int, devices: int, seed: int, moves: int = 50, **settings: str
) -> list[tuple[str, int]]:
    """Of each process: the bits of all that it read, and its native collectives."""
    said = run("natives.py", processes, devices, str(moves), str(seed), **settings)
    return [(line.split()[0], int(line.split()[1])) for line in said]


@pytest.mark.parametrize(("processes", "devices"), WORLDS)
def test_moves_drawn_at_random(processes, devices):
    seed = 10 * processes + devices
    direct = played(processes, devices, seed, 300, SPMDX_COLLECTIVES="direct")
    assert [natives for _, natives in direct] == [0] * processes
    native = played(processes, devices, seed, 300, SPMDX_COLLECTIVES="native")
    assert min(natives for _, natives in native) >= 200
    alike = {"SPMDX_COLLECTIVES": "native", "SPMDX_DETERMINISTIC": "1"}
    deterministic = played(processes, devices, seed, 300, **alike)
    assert [bits for bits, _ in deterministic] == [bits for bits, _ in direct]
    assert 0 < min(natives for _, natives in deterministic) < min(natives for _, natives in native)


FASTER = {"latency_ns": 100_000, "native_gathers": [[0, 0.5]], "native_sums": [[0, 2.0]]}


@pytest.mark.parametrize("processes", [2, 3])
def test_each_collective_goes_the_way_that_takes_less_time(processes, tmp_path):
    path = tmp_path / "links.json"
    path.write_text(json.dumps({"name": "measured", "levels": [FASTER]}))
    direct = played(processes, 2, 7, SPMDX_COLLECTIVES="direct", SPMDX_TOPOLOGY=str(path))
    found = played(processes, 2, 7, SPMDX_TOPOLOGY=str(path))
    assert [bits for bits, _ in found] == [bits for bits, _ in direct]  # no sum goes another way
    assert min(natives for _, natives in found) > 0
    assert [natives for _, natives in played(processes, 2, 7)] == [0] * processes


TOLD = """
import spmdx, torch
if spmdx.runtime.process_count() == 2:
    mesh = spmdx.Mesh(range(2), (2,), ("x",))
    rows = spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mesh, ("x", None))
    total = spmdx.mark_sharding(rows.sum(0), mesh, (None,))
    print(total.tolist(), [c.way for c in spmdx.explain().collectives if c.kind == "all_reduce"])
    print("native" in str(spmdx.explain()))
"""


@pytest.mark.parametrize("way", ["native", "direct"])
def test_explain_says_which_way(way):
    expected = f"[4.0, 4.0, 4.0, 4.0] ['{way}']\n{way == 'native'}\n"
    assert run(TOLD, 2, SPMDX_COLLECTIVES=way) == [expected] * 2


AFTERWARDS = """
import sys, json
import spmdx, torch
from spmdx._machine import natives
from spmdx._machine.watching import measuring

mesh = spmdx.Mesh(range(2), (2,), ("x",))
torch.use_deterministic_algorithms(spmdx.runtime.process_index() == 0)  # here alone, and too late
natives._SIZES = (1 << 12, 1 << 13)
with measuring("calibrate"):
    measured = natives.native_shares(mesh)
torch.use_deterministic_algorithms(False)
assert len(measured.sums) == len(measured.gathers) == 2
spmdx.set_topology(sys.argv[1])
rows = spmdx.mark_sharding(torch.ones(4, 4).to("spmdx"), mesh, ("x", None))
assert spmdx.mark_sharding(rows.sum(0), mesh, (None,)).tolist() == [4.0] * 4
print([c.way for c in spmdx.explain().collectives if c.kind == "all_reduce"])
"""


def test_a_measurement_goes_by_what_processes_agreed_on(tmp_path):
    path = tmp_path / "links.json"
    path.write_text(json.dumps({"name": "m", "levels": [{"native_sums": [[0, 0.5]]}]}))
    assert run(AFTERWARDS, 2, 1, str(path)) == ["['native']\n"] * 2


WAYS_OF = """
import spmdx, torch
mesh = spmdx.Mesh(range(2), (2,), ("x",))
def way(rows, spec, dtype=torch.float32, total=False):
    x = spmdx.mark_sharding(torch.ones(rows, 6, dtype=dtype).to("spmdx"), mesh, ("x", None))
    spmdx.sync()
    x.local_shards
    before = spmdx.debug.counters()["native_collectives"]
    y = spmdx.mark_sharding(x.sum(0) if total else x * 2, mesh, spec)
    spmdx.sync(wait=True)
    (row,) = [c for c in spmdx.explain().collectives if c.bytes]
    calls = spmdx.debug.counters()["native_collectives"] - before
    assert (row.way == "native") == (calls == 1), (row, calls)
    return row.way[0]
print(way(4, (None, None)), way(5, (None, None)), way(4, (None, "x")))
print(way(4, (None,), total=True), way(4, ("x",), total=True))
print(way(4, (None,), torch.bfloat16, total=True), way(5, (None,), total=True))
"""


def test_what_goes_as_messages_is_not_said_to_be_native():
    said = "n d d\nn n\nd n\n"
    assert run(WAYS_OF, 2, SPMDX_COLLECTIVES="native") == [said] * 2


DIFFER = """
import os
os.environ["SPMDX_COLLECTIVES"] = ("direct", "native")[int(os.environ["RANK"])]
import spmdx
spmdx.runtime.local_process_count()
"""


def test_settings_must_be_alike():
    with Running(DIFFER, 2) as running:
        ended = running.end()
    for how in ended:
        assert how.status and "SPMDX_COLLECTIVES is " in how.err, how.err


FAILS = """
import os
import spmdx, torch

HERE, COUNT = spmdx.runtime.process_index(), spmdx.runtime.process_count()
FAILING = False

@torch.library.custom_op("natives::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    if FAILING and HERE == 1:
        raise IndexError("here alone")
    return x.clone()

same.register_fake(torch.empty_like)
spmdx.register_rule("natives::same", "*->*")
mesh = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))
x = spmdx.mark_sharding(torch.arange(3.0 * COUNT).to("spmdx"), mesh, ("data",))
threads = []
for _ in range(4):
    for FAILING in (False, True):
        try:
            assert torch.ops.natives.same(x).sum().item() == 36 and not FAILING
        except (spmdx.CommError, IndexError):
            assert FAILING
    spmdx.runtime.recover()
    threads.append(len(os.listdir("/proc/self/task")))
assert threads[-1] <= threads[1], threads
print(spmdx.debug.counters()["native_collectives"] >= 4)
"""


def test_groups_of_generations_before_are_freed():
    assert run(FAILS, 3, SPMDX_COLLECTIVES="native", SPMDX_TIMEOUT="60") == ["True\n"] * 3
