# SPDX-License-Identifier: Apache-2.0
"""What the names of a step reach: objects within objects, and the places that hold them."""

import argparse
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from spmdx._auto.effects.places import Place, of_cell, of_container, of_global, of_slot
from spmdx._pipelines.reached import CONTAINERS, WALKED, generators

MOST = 1_000_000  # things that containers and objects hold, which are looked at
PLAIN = types.ModuleType, type, types.BuiltinFunctionType, str, bytes, int, float, complex
OWNERS = torch.nn.Module, torch.optim.Optimizer  # which a step is expected to change
LIBRARIES = {"spmdx", "torch", "numpy", *sys.stdlib_module_names}  # whose functions are not read
INNER = "spmdx", "torch._", "torch.fx"  # classes whose objects are not looked into
SIMPLE = types.SimpleNamespace, argparse.Namespace
Named = Iterator[tuple[Any, str]]


class Reach:
    """All that is reached from a step function, each once.

    Attributes:
        places: which the step can change.
        values: containers, tensors, generators of random numbers, and dicts of attributes.
        optimizers: among what is reached.
        is_all: whether there are no more than are looked at.
    """

    def __init__(self, step: Callable[..., Any], but: Iterable[Any]):
        """``but``: what is not looked into."""
        self.places: list[Place] = []
        self.values: list[Any] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.is_all = True
        self._seen = {id(value) for value in but}
        self._kept = generators()
        self._walk(step)

    def _walk(self, step: Any) -> None:
        waiting: deque[tuple[Any, str]] = deque(_start(step))
        known, count = [], 0  # what has an id is kept, so that no other gets the same
        while waiting:
            value, name = waiting.popleft()
            if id(value) in self._seen or isinstance(value, PLAIN) or value is None:
                continue
            self._seen.add(id(value))
            known.append(value)
            if isinstance(value, WALKED) and count + len(value) > MOST:
                self.is_all = False
                continue
            found = list(self._within(value, name))
            count += len(found)
            waiting.extend(found)

    def _within(self, value: Any, name: str) -> Named:
        """What a thing holds, each with its name."""
        if isinstance(value, (torch.Tensor, *self._kept)):
            self.values.append(value)
        elif isinstance(value, WALKED):
            self._note(value, name)
            held = dict.values(value) if isinstance(value, dict) else value
            yield from ((v, name) for v in held)
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, types.MethodType):
            yield from ((value.__self__, name), (value.__func__, name))
        elif isinstance(value, functools.partial):
            yield from ((v, name) for v in (value.func, value.args, value.keywords))
        elif not _is_inner(value):
            if isinstance(value, torch.optim.Optimizer):
                self.optimizers.append(value)
            own = "" if isinstance(value, OWNERS) else name
            yield from ((v, own) for v in self._attributes(value, own))

    def _note(self, container: Any, name: str) -> None:
        self.values.append(container)
        if isinstance(container, CONTAINERS):
            self.places.append(of_container(name, container))

    def _attributes(self, value: Any, name: str) -> Iterator[Any]:
        held = _dict_of(value)
        if held is not None and id(held) not in self._seen:
            self._seen.add(id(held))
            self._note(held, name)
            yield from held.values()
        for slot in _slots_of(type(value)):
            place = of_slot(name, value, slot)
            self.places.append(place)
            yield from place.read()

    def _of_function(self, function: types.FunctionType) -> Named:
        """Its attributes and defaults, and the variables that it reads of functions and files."""
        own = function.__name__
        yield from ((v, own) for v in self._attributes(function, own))
        yield from ((v, own) for v in (function.__defaults__, function.__kwdefaults__))
        code, space = function.__code__, function.__globals__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        found = [of_cell(n, cell) for n, cell in cells]
        if str(space.get("__name__")).split(".")[0] not in LIBRARIES:
            found += [of_global(n, space) for n in _names_in(code)]
        for place in found:
            self.places.append(place)
            yield from ((v, place.name) for v in place.read())


def _start(step: Any) -> Named:
    """The step itself, and the method that is called if it is an object."""
    if isinstance(step, types.MethodType):
        yield from ((step.__func__, ""), (step.__self__, "self"))
        return
    yield step, type(step).__name__
    if not isinstance(step, (types.FunctionType, functools.partial)):
        yield type(step).__call__, ""


def _names_in(code: types.CodeType) -> set[str]:
    """Of globals and attributes, also in functions and comprehensions within."""
    within = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return {*code.co_names}.union(*map(_names_in, within))


def _is_inner(value: Any) -> bool:
    """Whether it is an object of Python's own library, of the device, or of a compiler."""
    kind = type(value)
    module = str(kind.__module__)
    if module.startswith(INNER):
        return not isinstance(value, OWNERS)
    return module.split(".")[0] in sys.stdlib_module_names and not isinstance(value, SIMPLE)


def _dict_of(value: Any) -> dict[str, Any] | None:
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:  # its class has slots, or is none of Python's
        return None
    return held if type(held) is dict else None


def _slots_of(kind: type) -> list[str]:
    found: list[str] = []
    for base in kind.__mro__:
        own = vars(base).get("__slots__", ())
        named = [own] if isinstance(own, str) else own
        found += [n for n in named if isinstance(vars(base).get(n), types.MemberDescriptorType)]
    return found
