# SPDX-License-Identifier: Apache-2.0
"""A walk through the Python objects which a call could read, and the entries that watch them."""

import builtins
import collections
import enum
import functools
import gc
import logging
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

import spmdx._C as _C
from spmdx._replay.state.leaves import INERT, INERT_EXACTLY, KNOWN_BASES, has_few_values
from spmdx._replay.state.names import OF_MODULES, Names, child
from spmdx._replay.state.origins import Origin, origin_of, origin_of_class, origin_of_module

LIMIT = 200_000  # entries; what reaches more is no step but a data set

_CONTAINERS = (dict, list, set, collections.deque)
_FROZEN = (tuple, frozenset)
_REPLACED = {"forward", "step", "__call__"}  # in classes of libraries, by some programs
_WITH_HOOKS_OF_ALL = ("torch.nn.modules.module", "torch.optim.optimizer")
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class Walk:
    """Goes from roots through all that a call could read, and watches it.

    Attributes:
        watched: the entries, and ``paths`` what each of them is.
        refusal: the first object whose changes cannot be seen.
        device: tensors of the device, each once, and ``host`` those of the CPU with many values.
    """

    def __init__(self, names: Names):
        self.watched, self.paths = _C.replays.Watched(), list[str]()
        self.refusal: str | None = None
        self.device: list[tuple[str, torch.Tensor]] = []
        self.host: list[tuple[str, torch.Tensor]] = []
        self.small: list[torch.Tensor] = []
        self.schedulers: list[LRScheduler] = []
        self.met: set[types.CodeType] = set()
        self._names = names
        self._seen: dict[int, tuple[str, object]] = {}
        self._queue: collections.deque[tuple[str, Any]] = collections.deque()

    def reach(self, path: str, value: Any) -> None:
        """Walks through an object later, once."""
        if type(value) in INERT_EXACTLY and type(value) is not property or id(value) in self._seen:
            return
        self._seen[id(value)] = path, value
        if isinstance(value, nn.Module) or path.rpartition(".")[2] in OF_MODULES:
            self._queue.appendleft((path, value))  # a parameter is called by its module's name
        else:
            self._queue.append((path, value))

    def globals_that_ran(self) -> None:
        """Watches the globals that the code of the call names."""
        done: set[tuple[int, str]] = set()
        for variables, names in self._names.of_globals:
            for name in sorted(names):
                if (id(variables), name) not in done:
                    done.add((id(variables), name))
                    self._item(name, variables, name)
                    if name not in variables:
                        self._watch(name, self.watched.item, vars(builtins), name)
        for name in sorted(self._names.imports):
            self._item(name, sys.modules, name)
        for module in _WITH_HOOKS_OF_ALL:
            for name, hooks in vars(sys.modules[module]).items():
                if name.startswith("_global_") and isinstance(hooks, dict):
                    self.reach(f"{module}.{name}", hooks)

    def reached(self) -> set[int]:
        """All objects that were reached, by ``id``."""
        return set(self._seen)

    def run(self) -> None:
        """Walks until nothing new is reached, or something is refused."""
        while self._queue and self.refusal is None:
            path, value = self._queue.popleft()
            self._visit(path, value)
            if len(self.paths) > LIMIT:
                self.refusal = f"{path} is one of more than {LIMIT:,} objects that are reached"

    def _watch(self, path: str, add: Callable[..., None], *of: Any) -> None:
        add(*of)
        self.paths.append(path)

    def _item(self, path: str, owner: dict[Any, Any], key: Any) -> None:
        self._watch(path, self.watched.item, owner, key)
        if key in owner:
            self.reach(path, owner[key])

    def _attribute(self, path: str, owner: Any, name: str) -> None:
        self._watch(f"{path}.{name}", self.watched.attribute, owner, name)
        value, is_there = self.watched.seen(len(self.paths) - 1)
        if is_there:
            self.reach(f"{path}.{name}", value)

    def _refuse(self, path: str, value: object) -> None:
        cls = type(value)
        name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
        self.refusal = f"{path} is a {name}, whose changes cannot be seen"

    def _visit(self, path: str, value: Any) -> None:
        for classes, visit in _VISITS:
            if isinstance(value, classes):
                visit(self, path, value)
                return
        self._instance(path, value)

    def _tensor(self, path: str, tensor: torch.Tensor) -> None:
        """What it requires, and has: a gradient or none. Its values, where they are few."""
        self._watch(path, self.watched.tensor, tensor)
        if tensor.device.type != "cpu":
            self.device.append((path, tensor))
        elif has_few_values(tensor):
            self._watch(path, self.watched.data, tensor)
            self.small.append(tensor)
        else:
            self.host.append((path, tensor))
        for name in _HOOKS:
            if getattr(tensor, name):
                self._attribute(path, tensor, name)
        if tensor.__dict__:
            self._whole(f"{path}.__dict__", tensor.__dict__)

    def _whole(self, path: str, container: Any) -> None:
        """All keys and items of a container, and what they lead to."""
        if len(container) > LIMIT:
            self.refusal = f"{path} has {len(container):,} items. At most {LIMIT:,} are watched"
            return
        self._watch(path, self.watched.whole, container)
        if isinstance(container, dict):
            for key, value in dict.items(container):
                self.reach(f"a key of {path}", key)
                self.reach(child(path, key, self._written(key)), value)
            return
        iterate = set.__iter__ if isinstance(container, set) else iter
        for i, value in enumerate(iterate(container)):
            self.reach(f"{path}[{i}]", value)

    def _written(self, key: object) -> str | None:
        if type(key) in (str, int, bool, float, tuple):
            return None
        known = self._seen.get(id(key))
        return known[0] if known and not known[0].startswith("a key of") else "…"

    def _container(self, path: str, container: Any) -> None:
        self._whole(path, container)
        if isinstance(container, collections.defaultdict):
            self._attribute(path, container, "default_factory")
        if type(container) not in KNOWN_BASES:
            self._instance(path, container)

    def _frozen(self, path: str, container: Any) -> None:
        for i, value in enumerate(container):
            self.reach(f"{path}[{i}]", value)
        if type(container) not in KNOWN_BASES and not hasattr(container, "_fields"):
            self._instance(path, container)

    def function(self, path: str, function: types.FunctionType) -> None:
        """A function that did not run is only the object that it is; its attributes are read."""
        code = function.__code__
        origin = origin_of(code, function.__module__ or "")
        if origin != "spmdx" and function.__dict__:
            self._whole(f"{path}.__dict__", function.__dict__)
        if code not in self._names.codes or origin == "spmdx":
            self._watch(path, self.watched.attribute, function, "__code__")
            return
        self.met.add(code)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._attribute(path, function, name)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._watch(name, self.watched.cell, cell)
            value, is_there = self.watched.seen(len(self.paths) - 1)
            if is_there:
                self.reach(name, value)

    def _method(self, path: str, method: Any) -> None:
        """Bound, of Python or C: what it is bound to is reached, unless that is a module."""
        owner = method.__self__
        self.reach(path.rpartition(".")[0] or "self", owner)
        if isinstance(method, types.MethodType):
            self.reach(path, method.__func__)

    def _partial(self, path: str, partial: functools.partial[Any]) -> None:
        self.reach(f"{path}.func", partial.func)
        self.reach(f"{path}.args", partial.args)
        self.reach(f"{path}.keywords", partial.keywords)
        if partial.__dict__:
            self._whole(f"{path}.__dict__", partial.__dict__)

    def _wrapping(self, path: str, value: Any) -> None:
        for name in ("__wrapped__", "__func__", "func", "fget", "fset", "fdel"):
            self.reach(path, getattr(value, name, None))

    def _proxy(self, path: str, proxy: types.MappingProxyType[Any, Any]) -> None:
        for mapping in gc.get_referents(proxy):
            self.reach(path, mapping)

    def _weak(self, path: str, reference: weakref.ReferenceType[Any]) -> None:
        value = reference()
        if not isinstance(value, torch.Tensor):  # which is to die as it would without
            self.reach(f"{path}()", value)

    def _logger(self, path: str, logger: logging.Logger) -> None:
        """Whether it is heard at the levels that were asked for: any new level empties this."""
        self._attribute(path, logger, "disabled")
        self._attribute(path, logger, "_cache")

    def _member(self, path: str, member: enum.Enum) -> None:
        self._whole(path, vars(member))

    def _cache(self, path: str, cache: Any) -> None:
        """Of a function with a cache, its parts: what is in the cache is read, too."""
        for part in gc.get_referents(cache):
            if not isinstance(part, type):
                self.reach(path, part)

    def _module(self, path: str, module: types.ModuleType) -> None:
        """What the user's hold is walked through; of others only the objects are watched."""
        variables, is_users = vars(module), origin_of_module(module.__name__) == "user"
        is_any = is_users and self._names.is_dynamic
        names = set(variables) if is_any else self._names.of_user.intersection(variables)
        for name in sorted(name for name in names if not name.startswith("__")):
            if is_users:
                self._item(f"{path}.{name}", variables, name)
            else:
                self._watch(f"{path}.{name}", self.watched.item, variables, name)
                value = variables[name]
                if type(value) is list:
                    self._watch(f"{path}.{name}", self.watched.whole, value)
                elif isinstance(value, types.ModuleType):
                    self.reach(f"{path}.{name}", value)

    def _class(self, path: str, cls: type) -> None:
        """Attributes of the user's classes that are read by name, or run as methods."""
        if origin_of_class(cls) != "user":
            for name in _REPLACED.intersection(vars(cls)):
                self._watch(f"{path}.{name}", self.watched.attribute, cls, name)
            return
        self.reach(type(cls).__qualname__, type(cls))
        for base in cls.__mro__:
            if origin_of_class(base) != "user":
                continue
            self._watch(base.__qualname__, self.watched.size, vars(base))
            for name, value in list(vars(base).items()):
                if self._is_read(name, value):
                    for owner in {cls, base}:  # another class between may get one as well
                        self._watch(f"{path}.{name}", self.watched.attribute, owner, name)
                    self.reach(f"{path}.{name}", value)

    def _is_read(self, name: str, value: Any) -> bool:
        """Of a class: an attribute that is named, or a function that ran."""
        inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
        is_any = self._names.is_dynamic and not name.startswith("__")
        has_run = getattr(inner, "__code__", None) in self._names.codes
        return is_any or has_run or name in self._names.of_user

    def _instance(self, path: str, value: Any) -> None:
        cls = type(value)
        if cls.__module__ == "functools" and cls.__name__ == "_lru_list_elem":
            self._cache(path, value)
            return
        origin = origin_of_class(cls)
        if origin == "spmdx":
            if (wrapped := getattr(value, "__dict__", {}).get("__wrapped__")) is not None:
                self.reach(path, wrapped)  # a compiled function
            return
        known = KNOWN_BASES.union(b for b in cls.__mro__ if issubclass(b, BaseException))
        if any(b not in known and origin_of_class(b) is None for b in cls.__mro__):
            self._refuse(path, value)
            return
        if isinstance(value, LRScheduler):
            self.schedulers.append(value)
        self._watch(path, self.watched.type, value)
        self.reach(cls.__qualname__, cls)
        self._slots(path, value)
        variables = getattr(value, "__dict__", None)
        if isinstance(variables, dict):
            self._attributes(path, value, variables, origin)

    def _slots(self, path: str, value: Any) -> None:
        for base in type(value).__mro__:
            for name, member in vars(base).items():
                if isinstance(member, types.MemberDescriptorType) and base not in KNOWN_BASES:
                    self._attribute(path, value, name)

    def _attributes(
        self, path: str, value: Any, variables: dict[str, Any], origin: Origin | None
    ) -> None:
        """All attributes of what torch made; of the user's objects those that code names."""
        is_of_library = origin in ("torch", "standard", None)
        if is_of_library or self._names.is_dynamic:
            self._whole(f"{path}.__dict__", variables)
            return
        names: Iterable[str] = self._names.of_user
        bases = type(value).__mro__
        if any(origin_of_class(b) == "torch" for b in bases):
            names = self._names.of_all.union(OF_MODULES)
        of_class = {name for base in bases for name in vars(base)}
        for name in sorted(names):
            if name in variables or (name in of_class and name in self._names.of_user):
                self._item(f"{path}.{name}", variables, name)
        self._watch(path, self.watched.size, variables)
        self._watch(path, self.watched.attribute, value, "__dict__")


_VISITS: tuple[tuple[Any, Callable[[Walk, str, Any], None]], ...] = (
    (torch.Tensor, Walk._tensor),
    (INERT, lambda walk, path, value: None),
    (types.FunctionType, Walk.function),
    ((types.MethodType, types.BuiltinMethodType, types.MethodWrapperType), Walk._method),
    (functools.partial, Walk._partial),
    ((property, staticmethod, classmethod, functools.cached_property), Walk._wrapping),
    (functools._lru_cache_wrapper, Walk._cache),
    (weakref.ReferenceType, Walk._weak),
    (logging.Logger, Walk._logger),
    (torch.jit.ScriptModule, Walk._refuse),
    (enum.Enum, Walk._member),
    (types.ModuleType, Walk._module),
    (types.MappingProxyType, Walk._proxy),
    (type, Walk._class),
    (_CONTAINERS, Walk._container),
    (_FROZEN, Walk._frozen),
)
