# SPDX-License-Identifier: Apache-2.0
"""A change of what a step reads is seen, or what holds it is refused."""

import types

import pytest
import torch
from torch import nn
from watched_state import (
    ONE,
    Config,
    Mode,
    Trainer,
    assert_is_seen_or_refused,
    noting,
    patch,
    scale_of,
)

SCALE, COUNT, TENSOR = 2.0, 0, torch.ones(2)
TABLE, CHOICES, TEXTS = [1.0, 2.0], {"a": 1.0}, {"x"}
SETTINGS = types.ModuleType("settings_of_a_user")
SETTINGS.rate = 0.5


def rebind(name, value):
    def change(monkeypatch):
        monkeypatch.setitem(globals(), name, value)

    return change


CASES = {}
case = noting(CASES)


def of_trainer(name, step, change, expected):
    """A step and a change that are given a trainer."""

    def make():
        t = Trainer()
        return lambda: step(t), lambda monkeypatch: change(t)

    CASES[name] = make, expected


def of_globals(name, step, change, expected):
    CASES[name] = (lambda: (step, change)), expected


of_globals("global_number", lambda: ONE * SCALE, rebind("SCALE", 3.0), "SCALE changed from 2.0 to")
of_globals("global_tensor", lambda: ONE * TENSOR, rebind("TENSOR", torch.ones(2)), "TENSOR")
of_globals("global_list", lambda: ONE * TABLE[0], rebind("TABLE", [1.0, 2.0]), "TABLE")
of_globals(
    "global_gone", lambda: ONE * SCALE, lambda m: m.delitem(globals(), "SCALE"), "to nothing"
)
of_globals("global_hides_a_builtin", lambda: ONE * len(TABLE), rebind("len", lambda _: 9), "len")
of_globals(
    "default", lambda: scale_of(ONE), patch(scale_of, "__defaults__", (3.0,)), "__defaults__"
)
of_globals(
    "keyword_default",
    lambda: scale_of(ONE),
    patch(scale_of, "__kwdefaults__", {"plus": 1.0}),
    "__kwdefaults__",
)
of_globals(
    "code",
    lambda: scale_of(ONE),
    patch(scale_of, "__code__", (lambda x, by, *, plus: x).__code__),
    "",
)
of_globals(
    "constant_of_a_module", lambda: ONE * SETTINGS.rate, patch(SETTINGS, "rate", 0.25), "rate"
)
of_globals(
    "number_by_zeros", lambda: ONE * ZERO, rebind("ZERO", -0.0), "ZERO changed from 0.0 to -0.0"
)
of_globals("kind_of_number", lambda: ONE * SCALE, rebind("SCALE", 2), "SCALE changed from 2.0 to 2")
ZERO = 0.0

T = of_trainer
T("attribute", lambda t: ONE * t.rate, lambda t: setattr(t, "rate", 2.0), "t.rate changed from 1.0")
T(
    "nested",
    lambda t: ONE * t.config.inner.lr,
    lambda t: setattr(t.config.inner, "lr", 2.0),
    "inner.lr",
)
T(
    "nested_object",
    lambda t: ONE * t.config.lr,
    lambda t: setattr(t, "config", Config()),
    "t.config",
)
T("enum", lambda t: t.config.mode, lambda t: setattr(t.config, "mode", Mode.TEST), "t.config.mode")
T("list_item", lambda t: ONE * t.values[1], lambda t: t.values.__setitem__(1, 5.0), "t.values[1]")
T("list_grows", lambda t: ONE * len(t.values), lambda t: t.values.append(1.0), "3 items, and had 2")
T("dict_item", lambda t: ONE * t.limits["a"], lambda t: t.limits.update(a=2.0), "t.limits['a']")
T("dict_grows", lambda t: "b" in t.limits, lambda t: t.limits.update(b=2.0), "gained 'b'")
T("deque", lambda t: ONE * t.ring[0], lambda t: t.ring.append(2.0), "t.ring")
T("order", lambda t: list(t.ordered), lambda t: t.ordered.move_to_end("a"), "another order")
T("namespace", lambda t: t.space.rate, lambda t: setattr(t.space, "rate", 2.0), "t.space.rate")
T(
    "betas",
    lambda t: t.train(),
    lambda t: t.optimizer.param_groups[0].update(betas=(0.1, 0.9)),
    "betas",
)
T(
    "lr",
    lambda t: t.train(),
    lambda t: t.optimizer.param_groups[0].update(lr=0.2),
    "[0]['lr'] changed",
)
T("state", lambda t: t.train(), lambda t: t.optimizer.state.clear(), "optimizer.state")
T(
    "step",
    lambda t: t.train(),
    lambda t: t.optimizer.state[t.model[0].bias]["step"].add_(1),
    "'step'",
)
T(
    "train_or_test",
    lambda t: t.model(ONE),
    lambda t: t.model.eval(),
    "t.model.training changed from True",
)
T("frozen", lambda t: t.model(ONE), lambda t: t.model.requires_grad_(False), "weight.requires_grad")
T("hook", lambda t: t.model(ONE), lambda t: t.model.register_forward_hook(print), "_forward_hooks")
T("probability", lambda t: t.model(ONE), lambda t: setattr(t.model[1], "p", 0.5), "t.model[1].p")
T(
    "layer",
    lambda t: t.model(ONE),
    lambda t: t.model.append(nn.ReLU()),
    "t.model._modules gained '2'",
)
T(
    "layer_replaced",
    lambda t: t.model(ONE),
    lambda t: t.model.__setitem__(0, nn.Identity()),
    "t.model[0]",
)
T("property", lambda t: ONE * t.doubled, lambda t: setattr(t, "rate", 2.0), "t.rate")
T(
    "method",
    lambda t: t.scaled(ONE),
    lambda t: setattr(t, "scaled", ONE.mul),
    "t.scaled changed from",
)
T(
    "class_swapped",
    lambda t: t.scaled(ONE),
    lambda t: setattr(t, "__class__", type("B", (Trainer,), {})),
    "",
)
T(
    "dict_swapped",
    lambda t: ONE * t.rate,
    lambda t: setattr(t, "__dict__", dict(vars(t), rate=5.0)),
    "",
)
T(
    "hook_of_ones_own",
    lambda t: t.hook and t.hook(),
    lambda t: setattr(t, "hook", ONE.sum),
    "t.hook",
)
T("added", lambda t: hasattr(t, "extra"), lambda t: setattr(t, "extra", 1), "attributes, and had")
T(
    "computed",
    lambda t: getattr(t, "".join(["ra", "te"])),
    lambda t: setattr(t, "rate", 2.0),
    "refused: t.unread",
)
T("by_name", lambda t: getattr(t, "rate", 1.0), lambda t: setattr(t, "rate", 2.0), "t.rate")
T(
    "parameter_replaced",
    lambda t: t.model(ONE),
    lambda t: setattr(t.model[0], "weight", None),
    "weight",
)
T(
    "hook_of_a_tensor",
    lambda t: t.model(ONE),
    lambda t: t.model[0].bias.register_hook(print),
    "has hooks now",
)
T(
    "numpy",
    lambda t: t.table,
    None,
    "refused: t.table is a numpy.ndarray, whose changes cannot be seen",
)
T("generator", lambda t: next(t.made), None, "refused: t.made is a generator")
T("iterator", lambda t: t.iterator, None, "refused: t.iterator is a list_iterator")
T("randoms", lambda t: t.randoms, None, "refused: t.randoms is a random.Random")
T("generator_of_torch", lambda t: t.draws, None, "refused: t.draws is a torch._C.Generator")
T("file", lambda t: t.unread, None, "refused: t.unread is a _io.TextIOWrapper")
T("large", lambda t: t.large, None, "refused: t.large has 200,001 items")


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_or_what_holds_it_is_refused(name, monkeypatch):
    assert_is_seen_or_refused(*CASES[name], monkeypatch)
