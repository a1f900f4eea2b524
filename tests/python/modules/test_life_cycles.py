# SPDX-License-Identifier: Apache-2.0
"""Annotated modules live as plain ones: random lives, on the CPU and on a mesh.

python tests/python/helpers/lives/life_cycles.py 17 1000        # 1000 lives from seed 17 on
"""

import os

import life_cycles
import pytest
from marked_modules import MESHES

A_TEST = 20
LIVES = int(os.environ.get("RANDOM_PROGRAMS", "60"))  # `--count N`


@pytest.mark.parametrize("first", range(0, LIVES, A_TEST))
def test_random_lives_equal_those_on_the_cpu(first):
    for seed in range(first, first + A_TEST):
        life = life_cycles.draft(seed)
        if life_cycles.judge(life):
            small, wrong = life_cycles.shrink(life)
            pytest.fail(f"{small}\n{wrong}")


def test_a_life_that_differs_is_found():
    class Forgetful(life_cycles.World):
        def write(self, n):
            if self.device == "cpu":
                super().write(n)

    life = life_cycles.Life(0, (4,), (("begin", 0), ("mark", 3), ("write", 3)))
    assert life_cycles.judge(life) == ""
    assert "instead of" in life_cycles.judge(life, Forgetful)


def test_the_lives_have_every_event_and_every_mesh():
    drafted = [life_cycles.draft(seed) for seed in range(300)]
    assert {name for life in drafted for name, _ in life.events} == {*life_cycles.NAMES, "begin"}
    assert {life.mesh for life in drafted} == set(MESHES)
