# SPDX-License-Identifier: Apache-2.0
"""Calls functions when parts of PyTorch that are not imported yet have been imported.

Ctrl-C waits for those imports to end: a module that is imported halfway stays broken.
"""

import importlib.machinery
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from spmdx._base.interrupts import put_off

_Act = Callable[[types.ModuleType], None]


def _try(act: _Act, module: types.ModuleType) -> None:
    """Names that PyTorch keeps to itself may change, and its import must not fail for that."""
    try:
        act(module)
    except (AttributeError, ImportError, TypeError) as error:
        warnings.warn(
            f"spmdx cannot tell {module.__name__} of its device: {error}. Expected the names of "
            "PyTorch 2.13. Programs that do not compile for the device are not concerned.",
            stacklevel=2,
        )


class _Finder:
    """Finds nothing itself: asks the others, and adds what is to be done to what they found."""

    def __init__(self) -> None:
        self.acts: dict[str, _Act] = {}

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.acts:
            return None
        others = (f for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        """Lets ``loader``, which is of one module, act once it has executed that."""
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            with put_off():
                execute(module)
            act = self.acts.pop(module.__name__, None)  # not when it is reloaded
            if act is not None:
                _try(act, module)

        loader.exec_module = exec_module


_finder = _Finder()


def after_import(name: str, act: _Act) -> None:
    """Calls ``act`` with the module of this name: now if it is there, or once it is imported."""
    module = sys.modules.get(name)
    if module is not None:
        _try(act, module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.acts[name] = act


def keep_whole(name: str) -> None:
    """Lets Ctrl-C wait while the module of this name is imported, and what it imports."""
    after_import(name, lambda module: None)
