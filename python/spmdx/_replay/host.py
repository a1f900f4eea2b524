# SPDX-License-Identifier: Apache-2.0
"""What a call does with tensors of the host, as the steps that Adam counts."""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import spmdx._C as _C
from spmdx._replay.tape import HostFloat, Tape

# What tells Python of a tensor's values.
_READS = {"item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__complex__"}
_READS |= {"__contains__", "__array__", "equal", "allclose", "is_nonzero", "data_ptr", "__format__"}
_READS |= {"__repr__", "__str__", "__dlpack__", "untyped_storage", "__reduce_ex__", "__deepcopy__"}
_REALS = (torch.float32, torch.float64)
_ADDS = (torch._foreach_add_, torch.Tensor.add_, torch.Tensor.__iadd__)
MOST_BYTES = 4096  # of a tensor of the host that replays write to

Write = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class HostMode(TorchFunctionMode):
    """Follows one call of a function.

    Args:
        tensors: tensors of the host that the function reaches.
        changing: those among them that other calls of it write to, by ``id``.
        tape: where numbers are followed that change from call to call.

    Attributes:
        writes: what the call did to these, to be done again at each replay.
        refusal: what a replay cannot do again; empty: nothing.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor], changing: Container[int], tape: Tape
    ) -> None:
        super().__init__()
        self.writes: list[Write] = []
        self.refusal = ""
        self._tape = tape
        self._kept = {id(tensor): tensor for tensor in tensors}
        self._written: dict[int, torch.Tensor] = {}
        # Those that change from call to call, and what is made of them.
        self._changing = {i: tensor for i, tensor in self._kept.items() if i in changing}
        self._read_once: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = list(_tensors_in([*args, *kwargs.values()]))
        here = [tensor for tensor in given if tensor.device.type == "cpu"]
        name = getattr(func, "__name__", "")
        if len(here) < len(given) and any(map(self._changes, here)):
            self._refuse(f"{name} is given a tensor of the host that changes")
        followed = [n for n in _numbers_in([*args, *kwargs.values()]) if isinstance(n, HostFloat)]
        if followed:
            return self._use(func, name, args, kwargs, followed, here)
        if not here:
            return func(*args, **kwargs)
        if name in _READS:
            return self._read(func, name, args, kwargs, here)
        versions = [_version(tensor) for tensor in here]
        result = func(*args, **kwargs)
        written = [t for t, v in zip(here, versions, strict=True) if _version(t) != v]
        kept = [t for t in written if id(t) in self._kept]
        if kept:
            self._note_write(func, name, args, kwargs, kept)
        if any(map(self._changes, here)):
            for tensor in [*written, *_tensors_in([result])]:
                if id(tensor) not in self._kept:
                    self._changing[id(tensor)] = tensor
        return result

    def written(self) -> dict[int, torch.Tensor]:
        """The tensors that replays write to, by ``id``."""
        return self._written

    def _changes(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._written or id(tensor) in self._changing

    def _refuse(self, why: str) -> None:
        self.refusal = self.refusal or why

    def _use(
        self,
        func: Any,
        name: str,
        args: Any,
        kwargs: dict[str, Any],
        followed: list[HostFloat],
        here: list[torch.Tensor],
    ) -> Any:
        """A function that is given numbers which change: what it records has them."""
        if here:
            self._refuse(f"{name} is given a number that changes, and a tensor of the host")
        begin = _C.replays.recorded_so_far()
        result = func(*args, **kwargs)
        if any(t.device.type == "cpu" for t in _tensors_in([result])):
            self._refuse(f"torch.{name} makes a tensor of the host of a number that changes")
        results = [number.result for number in followed]
        end, gradients = _C.replays.recorded_so_far(), torch.is_grad_enabled()
        in_order = name.startswith("_foreach_")
        self._tape.numbers.add_use(begin, end, results, gradients, in_order)
        return result

    def _read(
        self, func: Any, name: str, args: Any, kwargs: dict[str, Any], here: list[torch.Tensor]
    ) -> Any:
        """A number of a tensor that the function reaches is followed: it may change."""
        value = func(*args, **kwargs)
        tensor = args[0]
        is_real = tensor.dtype in (torch.float32, torch.float64)
        if name == "item" and is_real and id(tensor) in self._kept:
            self._read_once.add(id(tensor))
            return self._tape.of_tensor(tensor, value)
        if any(map(self._changes, here)):
            self._refuse(f"Tensor.{name} reads a tensor of the host that changes")
        return value

    def _note_write(
        self, func: Any, name: str, args: Any, kwargs: Any, kept: list[torch.Tensor]
    ) -> None:
        if any(id(tensor) in self._read_once for tensor in kept):
            self._refuse(f"{name} writes to a tensor of the host after it was read")
        for tensor in _tensors_in([*args, *kwargs.values()]):
            is_made = id(tensor) in self._changing and id(tensor) not in self._kept
            if tensor.device.type != "cpu" or is_made:
                self._refuse(
                    f"{name} writes to a tensor of the host what changes from call to call"
                )
        if any(tensor.nbytes > MOST_BYTES for tensor in kept):
            self._refuse(f"{name} writes to a large tensor of the host")
        for tensor in kept:
            self._written[id(tensor)] = tensor
            self._tape.numbers.note_written(tensor)
        self.writes.append((func, args, kwargs))


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def increments(writes: Sequence[Write]) -> list[tuple[torch.Tensor, float]] | None:
    """What is added to which tensors, in order; None where something else is written."""
    found: list[tuple[torch.Tensor, float]] = []
    for func, args, kwargs in writes:
        if func not in _ADDS or len(args) != 2 or kwargs not in ({}, {"alpha": 1}):
            return None
        into, by = args[0] if isinstance(args[0], list | tuple) else [args[0]], args[1]
        if any(tensor.ndim or tensor.dtype not in _REALS for tensor in into):
            return None
        if isinstance(by, torch.Tensor):
            if by.ndim or any(by is tensor or by.dtype != tensor.dtype for tensor in into):
                return None
            by = by.item()
        if type(by) not in (int, float):
            return None
        found += [(tensor, float(by)) for tensor in into]
    return found


def same_writes(a: Sequence[Write], b: Sequence[Write]) -> bool:
    """Whether two calls wrote the same to the same tensors of the host."""
    return len(a) == len(b) and all(
        x[0] is y[0] and _same([*x[1], x[2]], [*y[1], y[2]]) for x, y in zip(a, b, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        is_one = a is b
        both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        return is_one or (both and a.dtype == b.dtype and not a.ndim and torch.equal(a, b))
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    return a is b or (type(a) is type(b) and repr(a) == repr(b))


def _tensors_in(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors_in(value)
        elif isinstance(value, dict):
            yield from _tensors_in(value.values())


def _numbers_in(values: Any) -> Iterator[float]:
    for value in values:
        if isinstance(value, float):
            yield value
        elif isinstance(value, list | tuple):
            yield from _numbers_in(value)
        elif isinstance(value, dict):
            yield from _numbers_in(value.values())
