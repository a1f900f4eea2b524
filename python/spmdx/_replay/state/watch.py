# SPDX-License-Identifier: Apache-2.0
"""Whether the Python state that a call of a function read is still what it was."""

import gc
import reprlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._replay.state.names import Names, child
from spmdx._replay.state.observed import Observed
from spmdx._replay.state.origins import origin_of
from spmdx._replay.state.walk import Walk

_NOTHING = object()


class _HostTensor:
    """A tensor of the CPU with many values, of which only PyTorch's own writes are seen."""

    def __init__(self, path: str, tensor: torch.Tensor):
        self.path, self.tensor = path, tensor
        self.version, self.address = tensor._version, _address(tensor)

    def has_changed(self) -> bool:
        """Whether it was written to, or lies elsewhere."""
        return self.tensor._version != self.version or _address(self.tensor) != self.address


def _address(tensor: torch.Tensor) -> int:
    return tensor.data_ptr() if tensor.layout == torch.strided else 0


class Watch:
    """The Python state that a function reads, as it is after a call of it.

    What the arguments themselves are is left to the caller, and so are tensors among them: only
    what objects given as arguments hold is watched.

    Args:
        function: what was called, with ``args`` and ``kwargs``.
        observed: that call.

    Attributes:
        refusal: why changes of the state cannot be seen; None where they can.
        tensors: the tensors of the device that are reached, each once, and how.
        host: the tensors of the CPU that are.
        schedulers: the schedules of learning rates that are.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        observed: Observed,
    ):
        names = Names(observed.codes)
        self._walk = walk = Walk(names)
        _reach_roots(walk, function, args, kwargs, observed)
        self.refusal = observed.refusal or walk.refusal
        self.tensors = walk.device
        self.schedulers = walk.schedulers
        self.host = [*walk.small, *(tensor for _, tensor in walk.host)]
        self._host = [_HostTensor(path, tensor) for path, tensor in walk.host]

    def __len__(self) -> int:
        return len(self._walk.paths)

    def changed(self) -> str | None:
        """What changed first since the watch was made, in a sentence; None: nothing."""
        change = next(self.changes(), None)
        return change.sentence() if change else None

    def let_change(self, tensors: Iterable[torch.Tensor]) -> None:
        """From now on elements of these tensors of the CPU may change."""
        for tensor in tensors:
            self._walk.watched.let_change(tensor)

    def reached(self) -> set[int]:
        """All objects that were reached, by ``id``."""
        return self._walk.reached()

    def forget(self, owner: Any) -> None:
        """From now on what this object holds itself may be anything."""
        for of in (owner, vars(owner)):
            self._walk.watched.forget(of)

    def changes(self) -> Iterator["Change"]:
        """All that changed."""
        walk = self._walk
        entry = walk.watched.changed()
        while entry >= 0:
            yield Change(walk.paths[entry], walk.watched, entry)
            entry = walk.watched.changed(entry + 1)
        for tensor in self._host:
            if tensor.has_changed():
                yield Change(tensor.path, tensor=tensor.tensor)


class Change:
    """One thing that is not what it was.

    Attributes:
        owner: the object that holds it.
        tensor: the tensor of the host whose values changed; None: it is something else.
        numbers: where floats are other floats now, as dicts and keys, if nothing else is other.
    """

    def __init__(
        self,
        path: str,
        watched: _C.replays.Watched | None = None,
        entry: int = 0,
        tensor: torch.Tensor | None = None,
    ) -> None:
        self._path, self._watched, self._entry = path, watched, entry
        self.tensor = tensor
        self.owner: Any = watched.owner(entry) if watched is not None else tensor
        self.numbers: list[tuple[dict[Any, Any], Any]] = []
        if watched is None:
            return
        if watched.kind(entry) == "data":
            self.tensor = watched.owner(entry)
        elif isinstance(watched.owner(entry), dict) and watched.kind(entry) == "whole":
            self.numbers = _numbers(watched.owner(entry), watched.seen(entry)[0])

    def leave_plain(self, plain: Callable[[Any], Any]) -> None:
        """What is held now becomes ``plain`` of it, where that is something else."""
        if self._watched is None or self._watched.kind(self._entry) not in ("whole", "attribute"):
            return
        owner = self.owner
        if self._watched.kind(self._entry) == "attribute":
            name = self._path.rpartition(".")[2]
            held = getattr(owner, name, None)
            if plain(held) is not held:
                setattr(owner, name, plain(held))
            return
        places = owner.items() if isinstance(owner, dict) else enumerate(owner)
        if isinstance(owner, dict | list):
            for key, held in list(places):
                if plain(held) is not held:
                    owner[key] = plain(held)

    def sentence(self) -> str:
        """What is other, and what it was."""
        if self._watched is None:
            return f"the values of {self._path} changed"
        watched, entry, path = self._watched, self._entry, self._path
        before, was_there = watched.seen(entry)
        now, is_there = watched.present(entry)
        kind = watched.kind(entry)
        if kind == "whole":
            return _difference(path, before, now, isinstance(watched.owner(entry), dict))
        if kind == "data":
            return f"the values of {path} changed"
        if kind == "tensor":
            return _of_tensor(path, before ^ now, now)
        if kind == "size":
            return f"{path} has {now} attributes, and had {before}"
        if kind == "type":
            return f"{path} is a {now.__qualname__}, and was a {before.__qualname__}"
        return _change(path, before if was_there else _NOTHING, now if is_there else _NOTHING)


def _numbers(owner: dict[Any, Any], before: tuple[Any, ...]) -> list[tuple[dict[Any, Any], Any]]:
    """The keys of a dict whose floats are others now; none where anything else is other."""
    keys, values = before[::2], before[1::2]
    if len(keys) != len(owner) or any(a is not b for a, b in zip(keys, owner, strict=True)):
        return []
    places = []
    for key, value in zip(keys, values, strict=True):
        now = owner[key]
        if _C.replays.is_same(value, now):
            continue
        if type(value) is not float or type(now) is not float:
            return []
        places.append((owner, key))
    return places


def _reach_roots(
    walk: Walk,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    observed: Observed,
) -> None:
    walk.reach(getattr(function, "__name__", "self"), function)
    named = _names_of_arguments(function, args)
    for path, value in [*zip(named, args, strict=True), *kwargs.items()]:
        for inner, leaf in _objects_in(path, value):
            walk.reach(inner, leaf)
    walk.globals_that_ran()
    walk.run()
    for path, value in observed.arguments():
        walk.reach(path, value)
    walk.run()
    for found in _functions_unmet(walk, observed):
        walk.reach(found.__qualname__, found)
    walk.run()


def _names_of_arguments(function: Any, args: Sequence[Any]) -> list[str]:
    code = getattr(function, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code else []
    names = names[1:] if isinstance(function, types.MethodType) else names
    return [names[i] if i < len(names) else f"args[{i}]" for i in range(len(args))]


def _objects_in(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The objects in arguments that are neither tensors nor plain containers."""
    if type(value) is dict:
        for key, inner in value.items():
            yield from _objects_in(child(path, key), inner)
    elif type(value) in (list, tuple):
        for i, inner in enumerate(value):
            yield from _objects_in(f"{path}[{i}]", inner)
    elif not isinstance(value, torch.Tensor):
        yield path, value


def _functions_unmet(walk: Walk, observed: Observed) -> list[types.FunctionType]:
    """Functions that ran with state of their own, and that the walk did not come by."""
    unmet = {
        code
        for code, variables in observed.codes.items()
        if (code.co_freevars or code.co_argcount or code.co_kwonlyargcount)
        and code not in walk.met
        and origin_of(code, str(variables.get("__name__", ""))) in ("user", "other")
    }
    if not unmet or walk.refusal is not None:
        return []
    referrers = gc.get_referrers(*unmet)
    found = [f for f in referrers if isinstance(f, types.FunctionType) and f.__code__ in unmet]
    return [f for f in found if f.__closure__ or f.__defaults__ or f.__kwdefaults__]


def _word(value: object) -> str:
    if value is _NOTHING:
        return "nothing"
    if isinstance(value, bool | int | float | complex | str | bytes | type(None) | torch.dtype):
        return reprlib.repr(value)
    if isinstance(value, tuple) and not any(isinstance(item, torch.Tensor) for item in value):
        return reprlib.repr(value)
    name = getattr(value, "__qualname__", None)
    return str(name) if isinstance(name, str) else f"a {type(value).__qualname__}"


def _of_tensor(path: str, difference: int, now: int) -> str:
    if difference & 1:
        return f"{path}.requires_grad changed from {not now & 1} to {bool(now & 1)}"
    for bit in (2, 4):
        if difference & bit:
            return f"{path} {'has hooks now' if now & bit else 'has no hooks now'}"
    return f"{path} has another shape or dtype"


def _change(path: str, before: object, now: object) -> str:
    was, is_ = _word(before), _word(now)
    if was == is_:
        return f"{path} is another object now: {is_}"
    return f"{path} changed from {was} to {is_}"


def _difference(path: str, before: tuple[Any, ...], now: tuple[Any, ...], pairs: bool) -> str:
    """What differs first between what a container held and what it holds."""
    if not pairs:
        if len(before) != len(now):
            return f"{path} has {len(now)} items, and had {len(before)}"
        i = next(
            (
                i
                for i, (a, b) in enumerate(zip(before, now, strict=True))
                if not _C.replays.is_same(a, b)
            ),
            0,
        )
        return _change(f"{path}[{i}]", before[i], now[i])
    keys, new_keys = before[::2], now[::2]
    for i, (key, new_key) in enumerate(zip(keys, new_keys, strict=False)):
        if not _C.replays.is_same(key, new_key):
            return f"{path} has other keys now, or in another order"
        if not _C.replays.is_same(before[2 * i + 1], now[2 * i + 1]):
            return _change(child(path, key), before[2 * i + 1], now[2 * i + 1])
    extra = (new_keys if len(new_keys) > len(keys) else keys)[min(len(keys), len(new_keys)) :]
    gained = "gained" if len(new_keys) > len(keys) else "lost"
    return f"{path} {gained} {_word(extra[0])}"
