# SPDX-License-Identifier: Apache-2.0
"""Native collectives make of every move what messages make of it."""

import pytest
from launch import Running, run

WORLDS = [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2)]


def played(processes: int, devices: int, seed: int, **settings: str) -> list[tuple[str, int]]:
    """Of each process: the bits of all that it read, and its native collectives."""
    said = run("natives.py", processes, devices, "50", str(seed), **settings)
    return [(line.split()[0], int(line.split()[1])) for line in said]


@pytest.mark.parametrize(("processes", "devices"), WORLDS)
def test_moves_drawn_at_random(processes, devices):
    seed = 10 * processes + devices
    direct = played(processes, devices, seed, SPMDX_COLLECTIVES="direct")
    assert [natives for _, natives in direct] == [0] * processes
    native = played(processes, devices, seed, SPMDX_COLLECTIVES="native")
    assert min(natives for _, natives in native) >= 10
    alike = {"SPMDX_COLLECTIVES": "native", "SPMDX_DETERMINISTIC": "1"}
    deterministic = played(processes, devices, seed, **alike)
    assert [bits for bits, _ in deterministic] == [bits for bits, _ in direct]
    assert 0 < min(natives for _, natives in deterministic) < min(natives for _, natives in native)


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
