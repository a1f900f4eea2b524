# SPDX-License-Identifier: Apache-2.0
"""Whose code is: the user's, that of an installed package, of Python's library, torch or spmdx."""

import functools
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any, Literal

from spmdx import errors

Origin = Literal["torch", "spmdx", "standard", "other", "user"]

_SPMDX, TORCH = errors.OWN
_STANDARD = functools.__file__.removesuffix("functools.py")
_BACKPORT = "/typing_extensions.py"  # of Python's typing, into which it puts functions of its own
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # flags of classes: of Python's, of C's alone


@functools.cache
def origin_of_file(file: str) -> Origin:
    """Whose the code in a file is. ``other``: a package that was installed."""
    if file.startswith(TORCH):
        return "torch"
    if file.startswith(_SPMDX):
        return "spmdx"
    if file.endswith(_BACKPORT):
        return "standard"
    if "/site-packages/" in file or "/dist-packages/" in file:
        return "other"
    return "standard" if file.startswith(_STANDARD) or file.startswith("<frozen ") else "user"


def origin_of(code: CodeType, module: str) -> Origin:
    """Whose a code is, in a module of this name; what is generated has no file."""
    origin = origin_of_file(code.co_filename)
    if (
        origin == "user"
        and code.co_filename.startswith("<")
        and not code.co_filename.startswith("<doctest")
    ):
        root = module.partition(".")[0]
        return "torch" if root == "torch" else "spmdx" if root == "spmdx" else origin
    return origin


def origin_of_module(name: str) -> Origin | None:
    """Whose a module is; None: it is not of Python code."""
    root = name.partition(".")[0]
    if root in ("torch", "spmdx"):
        return "torch" if root == "torch" else "spmdx"
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None if root in sys.builtin_module_names else "user"
    return None if file.endswith(".so") else origin_of_file(file)


def origin_of_class(cls: type) -> Origin | None:
    """Whose a class is; None: it is of C."""
    is_of_c = not cls.__flags__ & _HEAP_TYPE or cls.__flags__ & _IMMUTABLE_TYPE
    is_of_c = is_of_c or cls.__module__.startswith("_cython_")
    return None if is_of_c else origin_of_module(cls.__module__)


def codes_of_users(codes: dict[CodeType, dict[str, Any]]) -> Iterator[CodeType]:
    """Of codes with their globals those that are neither of torch, nor spmdx, nor Python."""
    for code, variables in codes.items():
        if origin_of(code, str(variables.get("__name__", ""))) in ("user", "other"):
            yield code
