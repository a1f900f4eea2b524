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
