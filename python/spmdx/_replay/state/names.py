# SPDX-License-Identifier: Apache-2.0
"""The names by which the code of a call reads what it was not given, and paths of names."""

import dis
import functools
import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from spmdx._replay.state.origins import origin_of

OF_MODULES = ("_parameters", "_buffers", "_modules", "training")


def child(path: str, key: object, written: str | None = None) -> str:
    """The path of what a container has under a key, as a program would write it."""
    base, _, last = path.rpartition(".")
    if last == "__dict__":
        return f"{base}.{key}"
    if last in OF_MODULES and isinstance(key, str):
        return f"{base}[{key}]" if key.isdigit() else f"{base}.{key}"
    return f"{path}[{written or repr(key)}]"


class CodeNames(NamedTuple):
    """The names by which a code reads what it was not given."""

    of_globals: frozenset[str]
    of_attributes: frozenset[str]
    imports: frozenset[str]  # modules that it imports itself
    is_dynamic: bool  # it reads attributes by names that it computes


_DYNAMIC = {"__dict__", "attrgetter", "methodcaller", "__getattribute__"}
_DYNAMIC_CALLS = {"vars", "dir"}
_BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}
_SIMPLE = {"LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_CONST", "LOAD_CLOSURE", "LOAD_NAME"}
_SKIPPED = {"PRECALL", "CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "LOAD_FAST_CHECK"}


def _names_a_constant(instructions: list[dis.Instruction], start: int) -> bool:
    """Whether the call of getattr or the like that is loaded at ``start`` has a constant name."""
    stack: list[dis.Instruction] = []
    for instruction in instructions[start + 1 :]:
        name = instruction.opname
        if name == "LOAD_FAST_CHECK" or name in _SIMPLE:
            stack.append(instruction)
        elif name == "CALL":
            is_whole = instruction.arg == len(stack) and len(stack) > 1
            return is_whole and stack[1].opname == "LOAD_CONST"
        elif not (name in _SKIPPED or (name == "LOAD_ATTR" and stack)):
            return False
    return False


def _reads_by_computed_name(code: CodeType, of_globals: set[str]) -> bool:
    if _DYNAMIC.intersection(code.co_names) or _DYNAMIC_CALLS & of_globals:
        return True
    if not _BY_NAME.intersection(code.co_names):
        return False
    instructions = list(dis.get_instructions(code))
    return not all(
        _names_a_constant(instructions, i)
        for i, instruction in enumerate(instructions)
        if instruction.argval in _BY_NAME
        and instruction.opname.startswith("LOAD_")
        and instruction.opname != "LOAD_CONST"
    )


@functools.lru_cache(maxsize=1 << 14)
def names_in(code: CodeType) -> CodeNames:
    """What a code reads by name. Texts among its constants may be names as well."""
    loads = list(dis.get_instructions(code))
    read = {i.argval for i in loads if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    imports = {i.argval for i in loads if i.opname == "IMPORT_NAME"}
    attributes = {*code.co_names, *_texts(code.co_consts)}
    is_dynamic = _reads_by_computed_name(code, read)
    return CodeNames(frozenset(read), frozenset(attributes), frozenset(imports), is_dynamic)


def _texts(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier():
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(constant)


class Names:
    """What all code of a call reads by name.

    Attributes:
        codes: what ran, and the globals of it.
        of_globals: globals of the user's code, and which of them it reads.
        imports: modules that the user's code imports when it runs.
        of_user: attributes that code outside of torch, spmdx and Python's own library reads.
        of_all: these, and those that torch reads.
        is_dynamic: the user's code reads attributes by names that it computes.
    """

    def __init__(self, codes: dict[CodeType, dict[str, Any]]):
        self.codes = codes
        self.of_globals: list[tuple[dict[str, Any], frozenset[str]]] = []
        self.imports: set[str] = set()
        of_user: set[str] = set()
        of_torch: set[str] = set()
        self.is_dynamic = False
        for code, variables in self.codes.items():
            module = str(variables.get("__name__", ""))
            origin, names = origin_of(code, module), names_in(code)
            if origin in ("user", "other"):
                self.of_globals.append((variables, names.of_globals))
                self.imports |= _modules_named(names.imports, variables)
                of_user |= names.of_attributes
                self.is_dynamic |= names.is_dynamic
            elif origin == "torch":
                of_torch |= names.of_attributes
            elif module in _COMPUTING:
                self.is_dynamic |= names.is_dynamic
        self.of_user, self.of_all = frozenset(of_user), frozenset(of_user | of_torch)


def _modules_named(names: Iterable[str], variables: dict[str, Any]) -> set[str]:
    """The modules that an import in a function may mean: absolute ones, or in packages around."""
    found: set[str] = set()
    package = str(variables.get("__package__") or "")
    for name in names:
        found.update(name.split(".")[0:1], [name])
        around = package
        while around:
            found.add(f"{around}.{name}" if name else around)
            around = around.rpartition(".")[0]
    return {name for name in found if name in sys.modules}


_COMPUTING = ("dataclasses", "copy", "inspect")  # read attributes of any object
