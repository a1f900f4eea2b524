# SPDX-License-Identifier: Apache-2.0
"""State of functions and classes that a step reads: closures, defaults, methods, hooks."""

import functools
import logging
import sys
import types
import weakref

import pytest
import torch
from torch import nn
from watched_state import (
    ONE,
    Slotted,
    Trainer,
    assert_is_seen_or_refused,
    do,
    noting,
    patch,
    scale_of,
)

CASES = {}
case = noting(CASES)


@case("rate changed from 1.0 to 2.0")
def closure():
    rate = 1.0

    def step():
        return ONE * rate

    def change(monkeypatch):
        nonlocal rate
        rate = 2.0

    return step, change


@case("rate changed from 1.0 to 2.0")
def closure_of_a_nested_function():
    rate = 1.0

    def inner():
        return ONE * rate

    def change(monkeypatch):
        nonlocal rate
        rate = 2.0

    return (lambda: inner()), change


@case("count changed from 2 to 3")
def counter_of_a_closure():
    count = 0

    def step():
        nonlocal count
        count += 1

    return step, do(step)


@case("slotted.rate changed from 1.0 to 2.0")
def slots():
    slotted = Slotted()
    return (lambda: ONE * slotted.rate), do(lambda: setattr(slotted, "rate", 2.0))


@case("slotted.rate changed from 1.0 to nothing")
def slot_emptied():
    slotted = Slotted()
    return (lambda: ONE * slotted.rate), do(lambda: delattr(slotted, "rate"))


@case("Trainer.factor changed from 3.0 to 4.0")
def attribute_of_a_class():
    t = Trainer()
    return (lambda: ONE * t.factor), patch(Trainer, "factor", 4.0)


@case("Trainer.scaled")
def method_of_a_class():
    t = Trainer()
    return (lambda: t.scaled(ONE)), patch(Trainer, "scaled", lambda self, x: x)


@case("Trainer.__len__")
def special_method():
    t = Trainer()
    return (lambda: len(t)), patch(Trainer, "__len__", lambda self: 4)


@case("t.factor changed from nothing to 4.0")
def attribute_that_hides_one_of_the_class():
    t = Trainer()
    return (lambda: ONE * t.factor), do(lambda: setattr(t, "factor", 4.0))


@case("by'] changed from 2.0 to 3.0")
def keywords_of_a_partial():
    step = functools.partial(scale_of, ONE, by=2.0)
    return step, do(lambda: step.keywords.update(by=3.0))


@case("self.rate changed from 1.0 to 2.0")
def bound_method():
    t = Trainer()
    return functools.partial(t.scaled, ONE), do(lambda: setattr(t, "rate", 2.0))


@case("rate")
def callable_object():
    class Called:
        rate = 1.0

        def __call__(self):
            return ONE * self.rate

    called = Called()
    return called, do(lambda: setattr(called, "rate", 2.0))


@case("rate changed from 1.0 to 2.0")
def wrapped():
    t = Trainer()

    @torch.no_grad()
    @functools.wraps(scale_of)
    def step():
        return ONE * t.rate

    return step, do(lambda: setattr(t, "rate", 2.0))


@case("step.calls changed")
def attribute_of_a_function():
    def step():
        step.calls = getattr(step, "calls", 0) + 1

    return step, do(step)


@case("texts")
def a_set():
    texts = {"x"}
    return (lambda: "y" in texts), do(lambda: texts.add("y"))


@case("layer.offset")
def buffer_replaced():
    layer = nn.Linear(2, 2)
    layer.register_buffer("offset", torch.zeros(2))
    return (lambda: layer.offset + 1), do(lambda: setattr(layer, "offset", torch.ones(2)))


@case("layer.rate changed from 1.0 to 2.0")
def attribute_of_a_users_module():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = 1.0

        def forward(self, x):
            return x * self.rate

    layer = Layer()
    return (lambda: layer(ONE)), do(lambda: setattr(layer, "rate", 2.0))


@case("the values of values changed")
def values_on_the_cpu():
    values = torch.zeros(3)
    return (lambda: values[0].item()), do(lambda: values.numpy().fill(1))


@case("the values of values changed")
def many_values_on_the_cpu():
    values = torch.zeros(3000)
    return (lambda: values[0].item()), do(lambda: values.add_(1))


@case("rate changed from 1.0 to 2.0")
def object_behind_a_weak_reference():
    t = Trainer()
    weak = weakref.ref(t)

    def step():
        return weak().scaled(ONE)

    return step, do(lambda: setattr(t, "rate", 2.0))


@case("rate changed from 1.0 to 2.0")
def backward_of_a_function():
    t = Trainer()

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, y):
            return y * t.rate

    x = torch.ones(2, requires_grad=True)
    return (lambda: torch.autograd.grad(Scale.apply(x).sum(), x)), do(
        lambda: setattr(t, "rate", 2.0)
    )


@case("rate changed from 1.0 to 2.0")
def state_of_a_hook_of_a_tensor():
    t, x = Trainer(), torch.ones(2, requires_grad=True)
    x.register_hook(lambda gradient: gradient * t.rate)
    return (lambda: torch.autograd.grad(x.sum(), x)), do(lambda: setattr(t, "rate", 2.0))


@case("rate changed from 1.0 to 2.0")
def a_module_that_the_step_imports():
    module = types.ModuleType("imported_by_a_step")
    sys.modules["imported_by_a_step"], module.rate = module, 1.0

    def step():
        import imported_by_a_step

        return ONE * imported_by_a_step.rate

    return step, patch(module, "rate", 2.0)


class Base:
    def scaled(self, x):
        return x


class Derived(Base):
    def scaled(self, x):
        return super().scaled(x) * 2


@case("scaled")
def method_of_a_base_behind_another():
    derived = Derived()
    return (lambda: derived.scaled(ONE)), patch(Base, "scaled", lambda self, x: x * 3)


@case("Derived has")
def a_special_method_that_is_added():
    derived = Derived()
    return (lambda: bool(derived)), do(lambda: setattr(Derived, "__bool__", lambda self: False))


@case("lost")
def what_a_cache_holds():
    @functools.lru_cache
    def cached(x):
        return x * 2

    return (lambda: cached(1.0)), do(cached.cache_clear)


@case("_cache lost")
def level_of_a_logger():
    logger = logging.getLogger("watched")
    return (lambda: logger.isEnabledFor(10)), do(lambda: logger.setLevel(10))


@case("functional.relu changed")
def function_of_torch():
    return (lambda: nn.functional.relu(ONE)), patch(nn.functional, "relu", nn.functional.gelu)


@case("Linear.forward changed")
def forward_of_a_class_of_torch():
    layer = nn.Linear(2, 2)
    return (lambda: layer(ONE)), patch(nn.Linear, "forward", lambda self, x: x)


@case("_global_forward_hooks gained")
def hook_of_all_modules():
    layer, hooks = nn.Linear(2, 2), nn.modules.module._global_forward_hooks
    return (lambda: layer(ONE)), lambda monkeypatch: monkeypatch.setitem(hooks, 0, print)


@case("layer.weight has another shape or dtype")
def dtype_of_a_parameter():
    layer = nn.Linear(2, 2)
    return (lambda: layer.weight * 2), do(layer.double)


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_or_what_holds_it_is_refused(name, monkeypatch):
    assert_is_seen_or_refused(*CASES[name], monkeypatch)
