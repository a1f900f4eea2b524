# SPDX-License-Identifier: Apache-2.0
"""What of two objects is the same, who holds a watch, and what it leaves to the caller."""

import gc
import weakref

from spmdx import _C
from watched_state import ONE, Config, Trainer, watch


def test_a_watch_in_a_cycle_is_collected():
    class Holder:
        pass

    holder = Holder()
    holder.watched = _C.replays.Watched()
    holder.watched.item(vars(holder), "watched")
    dead = weakref.ref(holder)
    del holder
    gc.collect()
    assert dead() is None


def test_what_is_the_same_is_told_by_its_bits():
    nan = float("nan")
    same = [(nan, float("nan")), (1.5, 3 / 2), ("ab", "".join("ab")), ((1, (2.5,)), (1, (5 / 2,)))]
    other = [(0.0, -0.0), (1, 1.0), (True, 1), (1 + 0j, complex(1, -0.0)), ([], []), ((1,), (1.0,))]
    assert all(_C.replays.is_same(a, b) for a, b in same)
    assert not any(_C.replays.is_same(a, b) for a, b in other)
    assert (
        _C.replays.is_same(ONE.__dir__, ONE.__dir__)
        and _C.replays.is_same(Config().__eq__, Config().__eq__) is False
    )


def test_arguments_are_the_callers_but_not_what_they_hold():
    t = Trainer()

    def step(trainer, batch, rate):
        return trainer.rate * batch["x"] * rate

    watched = watch(step, t, {"x": ONE}, 2.0)
    assert watched.refusal is None and watched.changed() is None
    t.rate = 2.0
    assert watched.changed() == "trainer.rate changed from 1.0 to 2.0"
