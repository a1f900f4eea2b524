# SPDX-License-Identifier: Apache-2.0
"""A block in which a program is planned in many ways, and behind which it is as it was."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import is_state
from spmdx._pipelines.held import tensors_of
from spmdx._pipelines.kept import planned_alone
from spmdx._pipelines.reached import CONTAINERS
from spmdx.errors import warn

PLAIN = types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType
OTHERS = torch.nn.Module, torch.optim.Optimizer, torch.Tensor  # which are looked after elsewhere


@contextlib.contextmanager
def apart(
    step: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> Iterator[None]:
    """What the block does to the model, its optimizer and what the step names is undone.

    A step that changes something of its own hears of it.
    """
    effects = Effects(step)
    own = {} if optimizer is None else vars(optimizer)
    with planned_alone(model, (effects.values, own)), _as_annotated(model):
        if optimizer is not None:
            optimizer.state.clear()
        model.zero_grad(set_to_none=True)
        try:
            yield
        finally:
            changed = effects.put_back()
    if changed:
        warn(
            f"search: the step changes {', '.join(changed)}. Expected one that changes the model "
            "and its optimizer alone, since it is called many times to be planned. What it "
            "changed there is as before; do it outside of the step, or mind what else it does."
        )


@contextlib.contextmanager
def _as_annotated(model: torch.nn.Module) -> Iterator[None]:
    """A block behind which the model's tensors have the annotations and classes of before."""
    before = [(t, type(t), _C.annotation(t)) for t in tensors_of(model).values()]
    try:
        yield
    finally:
        for tensor, kind, known in before:
            _C.annotate(tensor, known, is_state(tensor))
            tensor.__class__ = kind


class Effects:
    """Names that a step function reads, and what they hold: what it changes is put back.

    Attributes:
        values: what they hold, and the attributes of objects among it.
    """

    def __init__(self, function: Callable[..., Any]):
        self._cells, self._globals, self._reach = _names_of(function)
        named = [*self._reach.items()]
        named += [(name, cell.cell_contents) for name, cell in self._cells.items()]
        named += [(name, space[name]) for name, space in self._globals.items()]
        self._held = {name: _content(value) for name, value in named}
        self._named = dict(named)
        self.values = [*self._named.values(), *(_attributes(v) for v in self._named.values())]

    def put_back(self) -> list[str]:
        """Names hold what they held; returns those that did not, or whose contents changed."""
        changed = [name for name, value in self._named.items() if self._differs(name, value)]
        for name, cell in self._cells.items():
            cell.cell_contents = self._named[name]
        for name, space in self._globals.items():
            space[name] = self._named[name]
        return sorted(changed)

    def _differs(self, name: str, value: Any) -> bool:
        if name in self._cells:
            now = self._cells[name].cell_contents
        else:
            now = self._globals[name].get(name) if name in self._globals else value
        return now is not value or _content(value) != self._held[name]


def _names_of(function: Callable[..., Any]) -> tuple[dict, dict, dict]:
    """Cells of its closure, spaces of globals that it names, and objects that it is bound to."""
    reach: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, types.MethodType):
        reach["self"] = function.__self__
        function = function.__func__
    elif not isinstance(function, types.FunctionType):
        reach["the step"] = function
        function = vars(type(function)).get("__call__", function)
    if not isinstance(function, types.FunctionType):
        return {}, {}, reach
    code, space = function.__code__, function.__globals__
    names = zip(code.co_freevars, function.__closure__ or (), strict=True)
    cells = {name: cell for name, cell in names if _is_bound(cell)}
    wanted = {name: space for name in code.co_names if not isinstance(space.get(name), PLAIN)}
    return cells, {n: space for n in wanted if n in space}, reach


def _is_bound(cell: types.CellType) -> bool:
    try:
        return not isinstance(cell.cell_contents, PLAIN)
    except ValueError:  # it is empty
        return False


def _attributes(value: Any) -> dict[str, Any]:
    """Those of an object of a class of Python's, by name: the dict itself."""
    if isinstance(value, OTHERS) or isinstance(value, PLAIN):
        return {}
    return getattr(value, "__dict__", {})


def _content(value: Any) -> list[int]:
    """The identities of what a container or an object holds, to see whether it changes."""
    if isinstance(value, CONTAINERS):
        return [*map(id, _within(value))]
    return [*map(id, _attributes(value).values())]


def _within(value: Any) -> Iterator[Any]:
    return iter([*value.keys(), *value.values()] if isinstance(value, dict) else list(value))
