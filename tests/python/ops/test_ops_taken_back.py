# SPDX-License-Identifier: Apache-2.0
"""Ops that torch.library takes back and defines anew, as a notebook does."""

import gc

import pytest
import spmdx
import torch
from composites import mesh_of

pytestmark = pytest.mark.filterwarnings("ignore:.*has no sharding rule")
VALUES = [float(i) for i in range(8)]


@pytest.fixture
def x():
    return spmdx.mark_sharding(torch.tensor(VALUES).to("spmdx"), mesh_of(2), ("x",))


class Defined:
    """A library with one op; gone at the end of the block."""

    def __init__(self, schema, on_cpu, fake):
        self.library = torch.library.Library("taken_back", "DEF")
        self.library.define(schema)
        name = schema.split("(")[0]
        self.library.impl(name, on_cpu, "CPU")
        self.library.impl(name, fake, "Meta")

    def __enter__(self):
        return torch.ops.taken_back

    def __exit__(self, *_):
        self.library._destroy()
        vars(torch.ops).pop("taken_back", None)
        gc.collect()


def scaled(by):
    return Defined("f(Tensor x, float n) -> Tensor", lambda x, n: x * n + by, lambda x, n: 0 * x)


def test_another_op_in_its_place_has_its_own_arguments(x):
    for _ in range(20):
        with scaled(0) as ops:
            assert ops.f(x, 2.0).cpu().tolist() == [2 * v for v in VALUES]
        with Defined(
            "g(Tensor x, Tensor y, int n) -> (Tensor, Tensor)",
            lambda x, y, n: (x * n, x + y),
            lambda x, y, n: (0 * x, 0 * y),
        ) as ops:
            a, b = ops.g(x, x + 1, 3)
            assert a.cpu().tolist() == [3 * v for v in VALUES]
            assert b.cpu().tolist() == [2 * v + 1 for v in VALUES]


def test_the_op_of_the_same_name_has_its_own_arguments(x):
    with scaled(0) as ops:
        assert ops.f(x, 2.0).cpu().tolist() == [2 * v for v in VALUES]
    with Defined("f(int n, Tensor x) -> Tensor", lambda n, x: x - n, lambda n, x: 0 * x) as ops:
        assert ops.f(3, x).cpu().tolist() == [v - 3 for v in VALUES]


def test_a_plan_made_before_calls_the_op_that_is_there_now(x):
    others = []
    for turn in range(20):
        with scaled(turn) as ops:
            for _ in range(2):
                assert ops.f(x, 2.0).cpu().tolist() == [2 * v + turn for v in VALUES]
        others.append(torch.library.Library("taken_back_others", "FRAGMENT"))
        others[-1].define(f"g{turn}(Tensor x) -> Tensor")  # where the op was, if it were gone
    for library in others:
        library._destroy()


def test_a_cell_that_runs_again(x):
    for turn in range(3):

        @torch.library.custom_op("taken_back_cell::h", mutates_args=())
        def h(x: torch.Tensor, n: float, turn: int = turn) -> torch.Tensor:
            return x * n + turn

        h.register_fake(lambda x, n, turn=0: torch.empty_like(x))
        assert h(x, 2.0).cpu().tolist() == [2 * v + turn for v in VALUES]


def test_a_step_that_needs_one_that_is_gone_says_so(x):
    with scaled(0) as ops:
        y = ops.f(x, 7.0)
    with pytest.raises(spmdx.ShardingError, match=r"taken_back\.f.*mark_step before"):
        y.cpu()
    assert (x + 1).cpu().tolist() == [v + 1 for v in VALUES]


def test_what_it_wrote_goes_with_the_variant_that_does_not_write(x):
    def both(by):
        pair = scaled(by)
        pair.library.define("f_(Tensor(a!) x, float n) -> Tensor(a!)")
        pair.library.impl("f_", lambda x, n: x.mul_(n).add_(by), "CPU")
        pair.library.impl("f_", lambda x, n: x, "Meta")
        return pair

    for turn in range(5):
        with both(turn) as ops:
            y = x.clone()
            assert ops.f_(y, 2.0) is y
            assert y.cpu().tolist() == [2 * v + turn for v in VALUES]
