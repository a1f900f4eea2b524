# SPDX-License-Identifier: Apache-2.0
"""One call of a function, observed: which Python code ran, and what it called that is not pure.

Only the thread of the call is observed: backward passes have to run in it, too. Functions of C that
call others, as map and sorted do, show what is Python code, but not which functions of C they call.
So the generators of random numbers are compared as well.
"""

import functools
import random
import sys
import weakref
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType, TracebackType
from typing import Any

import torch

from spmdx import errors
from spmdx._replay.state.origins import TORCH, Origin, origin_of

# What is called in these is pure, apart from the names below.
_PURE_MODULES = set(
    "_abc _bisect _codecs _collections _collections_abc _contextvars _functools _heapq _imp _json "
    "_operator _sre _stat _string _struct _thread _typing _warnings _weakref "
    "bisect builtins collections contextvars copyreg functools heapq itertools math cmath "
    "operator re spmdx string struct sys torch types typing weakref".split()
)
_IMPURE = set(
    "builtins.print builtins.input builtins.open builtins.exec builtins.eval builtins.compile "
    "builtins.breakpoint builtins.globals builtins.__import__ _thread.start_new_thread "
    "_thread.start_joinable_thread _thread.get_ident sys.settrace sys.getrefcount sys.getsizeof "
    "sys.setrecursionlimit sys._current_frames sys.getallocatedblocks torch.Generator.seed "
    "torch.Generator.manual_seed torch.Generator.set_state torch.Generator.get_state "
    "sys.addaudithook sys.displayhook sys.set_int_max_str_digits sys.setswitchinterval".split()
)
# Where torch saves the state of a generator, or reads what it must not change.
_MAY_KEEP_GENERATORS = ("utils/checkpoint.py", "random.py")
# Modules of Python's own library whose functions depend on nothing but their arguments, or come
# here for the functions of C that they call.
_PURE_STANDARD = set(
    "_collections_abc _weakrefset abc ast bisect codecs collections contextlib contextvars copy "
    "copyreg dataclasses decimal dis encodings enum fractions functools genericpath heapq inspect "
    "importlib json keyword linecache logging math numbers opcode operator pathlib posixpath "
    "pprint re reprlib string textwrap threading token tokenize traceback types typing "
    "typing_extensions warnings weakref zipimport argparse statistics".split()
)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def origin_of_frame(frame: FrameType) -> Origin:
    """Whose the code is that runs in a frame."""
    return origin_of(frame.f_code, _module_of(frame))


def _place(frame: FrameType | None) -> str:
    """The innermost line of the user's, from a frame on; of any package where there is none."""
    fallback = frame
    while frame is not None and origin_of_frame(frame) != "user":
        frame = frame.f_back
    frame = frame or fallback
    return f"{errors.name_of_file(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else "?"


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported, which happens once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _called_by(frame: FrameType | None) -> Origin:
    """Who called the functions of Python's own library that run in a frame."""
    while frame is not None and (origin := origin_of_frame(frame)) == "standard":
        frame = frame.f_back
    return origin if frame else "user"


def _name_of(function: Any) -> tuple[str, str]:
    """The module and the name of a function of C, those of the class for a method."""
    owner, module = getattr(function, "__self__", None), getattr(function, "__module__", None)
    if isinstance(module, str):
        return module, f"{module}.{function.__name__}"
    cls = owner if isinstance(owner, type) else type(owner)
    found = next((c for c in cls.__mro__ if function.__name__ in vars(c)), cls)
    root = found.__module__.replace("torch._C", "torch")
    return found.__module__, f"{root}.{found.__qualname__}.{function.__name__}"


@functools.cache
def _is_pure(module: str, name: str) -> bool:
    return module.partition(".")[0] in _PURE_MODULES and name not in _IMPURE


class Observed:
    """What one call of a function runs: ``with Observed() as observed: function()``.

    Attributes:
        codes: the code that ran, with the globals of one function of that code.
        refusal: the first call that is not pure, as in ``"print is called at train.py:12"``.
    """

    def __init__(self) -> None:
        self.codes: dict[CodeType, dict[str, Any]] = {}
        self.refusal: str | None = None
        self._arguments: dict[int, tuple[str, weakref.ref[Any]]] = {}
        self._impure: set[CodeType] = set()
        self._before: Any = None
        self._generators: dict[str, Any] = {}

    def __enter__(self) -> "Observed":
        self._generators = _states_of_generators()
        self._before = sys.getprofile()
        sys.setprofile(self._see)
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(self._before)
        self._before = None
        self._refuse_drawn()

    def arguments(self) -> list[tuple[str, Any]]:
        """The objects which the user's functions were given that still live, and what they are."""
        alive = [(path, ref()) for path, ref in self._arguments.values()]
        return [(path, value) for path, value in alive if value is not None]

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "c_call" and self.refusal is None:
            self._call(frame, argument)

    def _enter(self, frame: FrameType) -> None:
        code = frame.f_code
        if code not in self.codes:
            if _is_importing(frame):
                return
            self.codes[code] = frame.f_globals
            if _is_impure(code, _module_of(frame)):
                self._impure.add(code)
        if code in self._impure and self.refusal is None:
            self._refuse_frame(frame)
        if code.co_varnames and origin_of_frame(frame) in ("user", "other"):
            if not _is_importing(frame):
                self._note_arguments(frame)

    def _note_arguments(self, frame: FrameType) -> None:
        """Weakly: what is made in a step must die in it."""
        code, values = frame.f_code, frame.f_locals
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            value = values.get(name)
            known = self._arguments.get(id(value))
            if (known is None or known[1]() is not value) and _is_noted(value):
                self._arguments[id(value)] = f"{name} of {code.co_name}", weakref.ref(value)

    def _refuse_frame(self, frame: FrameType) -> None:
        """A function of a library in Python that is not pure; what torch calls, it may call."""
        if _called_by(frame.f_back) not in ("torch", "spmdx") and not _is_importing(frame):
            name = f"{_module_of(frame)}.{frame.f_code.co_name}"
            self.refusal = f"{name} is called at {_place(frame)}"

    def _call(self, frame: FrameType, function: Any) -> None:
        module, name = _name_of(function)
        if _is_pure(module, name):
            return
        origin = origin_of_frame(frame)
        file = frame.f_code.co_filename
        of_library = origin == "standard" and _called_by(frame) in ("torch", "spmdx")
        if (
            origin == "spmdx"
            or of_library
            or (origin == "torch" and _is_allowed_in_torch(name, file))
        ):
            return
        if _is_importing(frame):
            return
        shown = name.removeprefix("builtins.").removeprefix("_io.")
        self.refusal = f"{shown} is called at {_place(frame)}"

    def _refuse_drawn(self) -> None:
        for name, before in self._generators.items():
            if self.refusal is None and _states_of_generators().get(name) != before:
                self.refusal = f"{name} is drawn from, or seeded"
        self._generators = {}


def _states_of_generators() -> dict[str, Any]:
    """numpy's functions are no functions of C to a profile, so that its calls are not seen."""
    states = {
        "torch's random generator of the CPU": torch.default_generator.get_state()
        .numpy()
        .tobytes(),
        "the generator of the module random": random.getstate(),
    }
    if numpy := sys.modules.get("numpy"):
        kind, key, *rest = numpy.random.get_state()
        states["numpy's random generator"] = kind, key.tobytes(), *rest
    return states


def _is_impure(code: CodeType, module: str) -> bool:
    """Whether a function in Python of a library is not known to be pure."""
    origin, root, name = origin_of(code, module), module.partition(".")[0], code.co_name
    if origin == "standard":
        return root not in _PURE_STANDARD and name not in ("fspath", "fsdecode", "fsencode")
    if origin == "torch":
        return module == "torch.random" and name in ("manual_seed", "seed")
    return origin == "other" and root == "numpy"


def _is_allowed_in_torch(name: str, file: str) -> bool:
    if name.startswith("torch.Generator."):
        return file.removeprefix(TORCH) in _MAY_KEEP_GENERATORS and "state" in name
    return name in ("_thread.get_ident", "sys.getrefcount", "builtins.globals")


def _is_noted(value: object) -> bool:
    """Whether an argument may hold state of the program: neither data nor functions."""
    cls = type(value)
    if issubclass(cls, torch.Tensor | type | ModuleType | BuiltinFunctionType):
        return False
    return bool(cls.__weakrefoffset__ and cls.__dictoffset__) and cls.__module__ != "builtins"
