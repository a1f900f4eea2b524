# SPDX-License-Identifier: Apache-2.0
"""Structures of any kind in which what is chosen is made anew: batches are objects of all sorts."""

import copy
import enum
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

_NO_STRUCTURES = (type, types.ModuleType, types.FunctionType, enum.Enum, torch.nn.Module)


def rewritten(
    value: Any, chosen: Callable[[Any], bool], change: Callable[[Any], Any], above: tuple = ()
) -> Any:
    """A structure of the same form in which what is ``chosen`` is changed.

    Args:
        value: tensors in dicts, lists, tuples, and objects that have attributes.
        chosen: called with what is in it.
        change: called with what was chosen.
        above: the objects that it is in; what is in itself stays.

    Returns:
        The value itself where nothing in it was chosen.
    """
    if chosen(value):
        return change(value)
    if id(value) in above or isinstance(value, _NO_STRUCTURES):
        return value

    def inner(part: Any) -> Any:
        return rewritten(part, chosen, change, (*above, id(value)))

    if isinstance(value, PackedSequence):  # the lengths stay on the CPU
        data, lengths, *orders = value
        return PackedSequence(inner(data), lengths, *map(inner, orders))
    if isinstance(value, dict):
        return _updated(value, {key: inner(part) for key, part in value.items()})
    if isinstance(value, list | tuple):
        parts = [inner(part) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return _with_attributes(value, inner)


def _updated(value: dict, parts: dict) -> dict:
    if all(parts[key] is value[key] for key in parts):
        return value
    made = copy.copy(value)  # of its own class, as an OrderedDict
    made.update(parts)
    return made


def _with_attributes(value: Any, inner: Callable[[Any], Any]) -> Any:
    held = getattr(value, "__dict__", None)
    if not isinstance(held, dict):
        return value
    parts = {name: inner(part) for name, part in held.items()}
    if all(parts[name] is held[name] for name in parts):
        return value
    made = copy.copy(value)
    made.__dict__.update(parts)
    return made
