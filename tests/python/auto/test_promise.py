# SPDX-License-Identifier: Apache-2.0
"""What strategies may take, as whole plans of others tell."""

from types import SimpleNamespace

import pytest
import spmdx._C as _C
from spmdx._auto.estimates import Promise
from spmdx._auto.space import Estimated


def estimated(microbatches, step_ns, recomputed_ns, data=8, zero=3):
    parallelism = _C.Parallelism(data, 8 // data, 1, microbatches, zero, "")
    estimate = SimpleNamespace(step_ns=step_ns, recomputed_ns=recomputed_ns)
    return Estimated(parallelism, estimate, None, ())


def test_half_of_what_is_computed_again_counts_until_plans_tell():
    one, two, far = estimated(1, 5000, 800), estimated(2, 4500, 200), estimated(16, 6000, 1000)
    promise = Promise([one, two, far])
    assert promise.step_ns(one) == 4200 + 400
    assert promise.best(4400) is two  # 4300 + 100
    promise.learn(two, 4300)
    promise.settle(two, 20)  # a tenth
    assert promise.step_ns(one) == pytest.approx(4200 + 80)
    assert promise.best(4320) is one
    promise.learn(one, 4200)
    promise.settle(one, 0)
    assert promise.step_ns(far) == pytest.approx(5000 + 100)  # that with two is nearer


def test_the_nearest_plans_tell_in_the_mean():
    near = [estimated(2, 1200, 200, zero=zero) for zero in (1, 2)]
    other = estimated(2, 2200, 200)
    promise = Promise([*near, other])
    for each, once, again in zip(near, (1100, 1300), (40, 80), strict=True):
        promise.learn(each, once)
        promise.settle(each, again)
    assert promise.step_ns(other) == pytest.approx(2000 * 1.2 + 200 * 0.3)


def test_what_computes_nothing_again_tells_nothing_of_it():
    plain, other = estimated(2, 1000, 0), estimated(1, 1200, 200)
    promise = Promise([plain, other])
    promise.learn(plain, 1000)
    promise.settle(plain, 0)
    assert promise.step_ns(other) == pytest.approx(1000 + 100)


def test_what_does_something_else_than_its_estimate_tells_of_its_axes_alone():
    for once_ns in (3000, 300):
        told, like = estimated(1, 1000, 0, data=8), estimated(4, 2000, 0, data=8)
        other = estimated(1, 1000, 0, data=4)
        promise = Promise([told, like, other])
        promise.learn(told, once_ns)
        assert promise.step_ns(like) == pytest.approx(2000 * once_ns / 1000)
        assert promise.step_ns(other) == 1000


def test_a_plan_of_more_microbatches_tells_more_of_many():
    one, few, many = (estimated(n, 1000 * n, 0) for n in (1, 4, 16))
    promise = Promise([one, few, many])
    promise.learn(one, 700)
    promise.learn(few, 6000)
    assert promise.step_ns(many) == pytest.approx(16_000 * 1.5)
