# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that a call does on numbers which change from call to call, written down."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree

import spmdx._C as _C


class Tape:
    """The arithmetic of one call.

    Attributes:
        numbers: what is done, in order.
        escaped: the first number that was turned into what is not followed; empty: none was.
    """

    def __init__(self) -> None:
        self.numbers = _C.replays.HostNumbers()
        self.escaped = ""
        self.is_open = True

    def of_tensor(self, tensor: torch.Tensor, value: float) -> float:
        """A number that a tensor of the host holds."""
        return HostFloat(value, self, self.numbers.add_tensor(tensor, value))

    def given(self, which: int, value: float) -> float:
        """A number that replays are given."""
        return HostFloat(value, self, self.numbers.add_given(which, value))

    def note(self, op: Any, a: Any, b: Any, value: Any) -> Any:
        """The result of an operation. ``a``, ``b``: numbers, of this tape or constant."""
        if not self.is_open or type(value) is not float:
            self.escape(type(value).__name__)
            return value
        return HostFloat(value, self, self.numbers.add(op, _operand(a), _operand(b), value))

    def guard(self, comparison: Any, a: Any, b: Any, holds: bool) -> bool:
        """The outcome of a comparison, on which the call goes on."""
        if self.is_open:
            self.numbers.add_guard(comparison, _operand(a), _operand(b), holds)
        return holds

    def escape(self, into: str) -> None:
        """A number was turned into something that depends on it in ways that are not followed."""
        if self.is_open and not self.escaped:
            self.escaped = into


def _operand(value: Any) -> int | float:
    """The number of a result, or a constant."""
    return value.result if isinstance(value, HostFloat) else float(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float, HostFloat)


class HostFloat(float):
    """A float that writes down what is computed with it. What it cannot follow, it says."""

    __slots__ = ("result", "tape")

    tape: Tape
    result: int

    def __new__(cls, value: float, tape: Tape, result: int) -> "HostFloat":
        self = super().__new__(cls, value)
        self.tape, self.result = tape, result
        return self

    # What PyTorch and copies take it for.
    def __reduce_ex__(self, protocol: Any) -> Any:
        self.tape.escape("a copy")
        return float, (plain(self),)

    def __hash__(self) -> int:
        self.tape.escape("a key")
        return hash(plain(self))

    def __bool__(self) -> bool:
        return not self.tape.guard("eq", self, 0.0, plain(self) == 0.0)


def plain(value: Any) -> Any:
    """The number itself, which nobody follows."""
    return float.__add__(value, -0.0) if isinstance(value, HostFloat) else value


def without_tape(value: Any) -> Any:
    """A result with plain floats in place of numbers of a tape."""
    leaves = _pytree.tree_leaves(value)
    if not any(isinstance(leaf, HostFloat) for leaf in leaves):
        return value
    return _pytree.tree_map_only(HostFloat, plain, value)


def _binary(op: Any, compute: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """A method of two numbers, and the one for the other order."""

    def forward(self: HostFloat, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        return self.tape.note(op, self, other, compute(plain(self), plain(other)))

    def backward(self: HostFloat, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        return self.tape.note(op, other, self, compute(plain(other), plain(self)))

    return forward, backward


def _unary(op: Any, compute: Callable[[Any], Any]) -> Any:
    return lambda self: self.tape.note(op, self, 0.0, compute(plain(self)))


def _comparing(comparison: Any, swapped: bool, negated: bool) -> Any:
    tests = {
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "eq": lambda a, b: a == b,
    }

    def compare(self: HostFloat, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        holds = self.tape.guard(comparison, a, b, tests[comparison](plain(a), plain(b)))
        return holds != negated

    return compare


def _escaping(name: str) -> Any:
    """A method of float that is not followed."""
    method = getattr(float, name)

    def call(self: HostFloat, *args: Any) -> Any:
        self.tape.escape(f"what float.{name} gives")
        return method(plain(self), *map(plain, args))

    return call


def _add_methods() -> None:
    binary = {
        "add": ("add", lambda a, b: a + b),
        "sub": ("sub", lambda a, b: a - b),
        "mul": ("mul", lambda a, b: a * b),
        "truediv": ("truediv", lambda a, b: a / b),
        "pow": ("pow", lambda a, b: a**b),
    }
    for name, (op, compute) in binary.items():
        forward, backward = _binary(op, compute)
        setattr(HostFloat, f"__{name}__", forward)
        setattr(HostFloat, f"__r{name}__", backward)
    comparisons = {
        "lt": ("lt", False, False),
        "le": ("le", False, False),
        "gt": ("lt", True, False),
        "ge": ("le", True, False),
        "eq": ("eq", False, False),
        "ne": ("eq", False, True),
    }
    for name, how in comparisons.items():
        setattr(HostFloat, f"__{name}__", _comparing(*how))
    HostFloat.__neg__ = _unary("neg", lambda a: -a)  # type: ignore[method-assign]
    HostFloat.__abs__ = _unary("abs", abs)  # type: ignore[method-assign]
    HostFloat.__pos__ = lambda self: self  # type: ignore[method-assign]
    kept = set(vars(HostFloat)) | set(dir(object)) - {"__repr__", "__str__", "__format__"}
    for name in dir(float):
        if name not in kept and callable(getattr(float, name)) and name != "fromhex":
            setattr(HostFloat, name, _escaping(name))
    for name in ("real", "imag"):
        setattr(HostFloat, name, property(_escaping("conjugate")))


_add_methods()


def _followed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the module math that says which numbers it was given."""

    def call(*args: Any, **kwargs: Any) -> Any:
        found = next((a for a in args if isinstance(a, HostFloat)), None)
        if found is None:
            return function(*args, **kwargs)
        result = function(*map(plain, args), **kwargs)
        if name == "sqrt":
            return found.tape.note("sqrt", found, 0.0, result)
        found.tape.escape(f"what math.{name} gives")
        return result

    return call


@contextmanager
def following_math() -> Iterator[None]:
    """Functions of the module math follow numbers of a tape in this block."""
    unfollowed = {n: f for n, f in vars(math).items() if callable(f) and not n.startswith("_")}
    vars(math).update({name: _followed(name, function) for name, function in unfollowed.items()})
    try:
        yield
    finally:
        vars(math).update(unfollowed)
