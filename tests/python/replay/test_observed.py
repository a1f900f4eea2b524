# SPDX-License-Identifier: Apache-2.0
"""What a call runs is noted, and what in it is not pure is named."""

import datetime
import gc
import logging
import os
import random
import sys
import time
import typing
import weakref

import numpy
import pytest
import torch
import typing_extensions
from spmdx._replay.state.observed import Observed
from spmdx._replay.state.origins import codes_of_users
from watched_state import ONE, watch

IMPURE = {
    "print": (lambda: print(), "print is called at"),
    "time": (lambda: time.time(), "time.time is called at"),
    "random": (lambda: random.random(), "random.Random.random is called at"),
    "randint": (lambda: random.randint(0, 9), "random.randint is called at"),
    "numpy_random": (lambda: numpy.random.rand(), "numpy's random generator is drawn from"),
    "numpy": (lambda: numpy.array([1]), "numpy.array is called at"),
    "numpy_mean": (lambda: numpy.mean([1]), "is called at"),
    "open": (lambda: open(os.devnull), "open is called at"),
    "environment": (lambda: os.environ["PATH"], "os.__getitem__ is called at"),
    "getenv": (lambda: os.getenv("PATH"), "os.getenv is called at"),
    "now": (lambda: datetime.datetime.now(), "datetime.datetime.now is called at"),
    "seed": (lambda: torch.manual_seed(0), "is called at"),
    "exists": (lambda: os.path.exists("x"), "stat is called at"),
    "exec": (lambda: exec("1"), "exec is called at"),
    "globals": (lambda: globals()["ONE"], "globals is called at"),
    "write": (lambda: sys.stdout.write(""), "is called at"),
    "save": (lambda: torch.save({}, os.devnull), "is called at"),
    "warn": (lambda: logging.getLogger("x").error("y"), "is called at"),
    "collect": (lambda: gc.collect(), "gc.collect is called at"),
    "drawn": (lambda: torch.rand(2), "torch's random generator of the CPU is drawn from"),
    "drawn_by_c": (lambda: list(map(lambda f: f(), [random.random])), "random"),
}


@pytest.mark.parametrize("name", IMPURE)
def test_what_is_not_pure_is_named_with_its_line(name):
    step, expected = IMPURE[name]
    with Observed() as observed:
        step()
    assert observed.refusal is not None and expected in observed.refusal
    line = step.__code__.co_firstlineno
    assert observed.refusal.endswith(f"test_observed.py:{line}") or "drawn" in observed.refusal
    assert watch(step).refusal


def test_a_profile_function_of_ones_own_is_put_back():
    def profile(frame, event, argument):
        pass

    sys.setprofile(profile)
    try:
        with Observed():
            pass
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)


def test_what_a_step_makes_dies_in_it():
    died = []

    class Made:
        def __init__(self, x):
            self.x = x
            weakref.finalize(self, died.append, 1)

    def use(made):
        return made.x * 2

    with Observed() as observed:
        use(Made(ONE))
    assert died and not [value for _, value in observed.arguments() if isinstance(value, Made)]


def test_the_backport_of_typing_is_none_of_the_users_packages():
    class Unseen:
        """A class that no cache of typing knows."""

    with Observed() as observed:
        typing.List[Unseen]  # noqa: UP006
        typing_extensions.get_type_hints(Unseen)
    users = {code.co_filename for code in codes_of_users(observed.codes)}
    assert users <= {__file__} and observed.refusal is None
