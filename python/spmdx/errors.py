# SPDX-License-Identifier: Apache-2.0
"""The errors spmdx raises, and how a message gets to lead with the user's own line."""

import os
import sys
import warnings
from types import FrameType
from typing import Any

import torch


class ShardingError(ValueError):
    """The program is wrong: a mesh, a partition spec or a tensor does not fit.

    Example:
        >>> issubclass(ShardingError, ValueError)
        True
    """


class CommError(RuntimeError):
    """The world is wrong: a peer died, stalled, or runs another program."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read: files, names, shapes or dtypes do not fit."""


class InternalError(RuntimeError):
    """spmdx is wrong: the message says that this is a bug in spmdx."""


# Folders of code that is not the user's.
OWN = tuple(os.path.dirname(os.path.abspath(m)) + os.sep for m in (__file__, torch.__file__))


def user_frame() -> FrameType | None:
    """The innermost frame that is neither spmdx's nor torch's; None when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    return frame


def _is_own(frame: FrameType) -> bool:
    """Whether code of spmdx or torch runs in ``frame``, that which dataclasses write included."""
    module = frame.f_globals.get("__name__", "")
    return frame.f_code.co_filename.startswith(OWN) or module.startswith(("spmdx.", "torch."))


def shell_of_ipython() -> Any:
    """IPython's shell; None where the program runs in none."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def name_of_file(path: str) -> str:
    """What messages call a file: ``"train.py"``, or a cell of a notebook: ``"In[3]"``."""
    compiler = getattr(shell_of_ipython(), "compile", None)
    cell = getattr(compiler, "format_code_name", lambda _: None)(path)
    return os.path.basename(path) if cell is None else str(cell[1])


def user_line() -> str:
    """The user's file and line as in ``"train.py:41"``, of a notebook ``"In[3]:7"``.

    Empty when no frame is the user's.
    """
    frame = user_frame()
    if frame is None:
        return ""
    return f"{name_of_file(frame.f_code.co_filename)}:{frame.f_lineno}"


def warn(message: str) -> None:
    """A UserWarning of the user's line, which leads the message."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, stacklevel=2)
        return
    warnings.warn_explicit(
        f"{user_line()}: {message}",
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__", "<string>"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def located(function: str, message: str) -> str:
    """``message`` led by the user's line and the function that raises it."""
    return ": ".join(part for part in (user_line(), function, message) if part)


def bare(error: BaseException) -> str:
    """Its message without the line and the function that a block of :class:`naming` put first."""
    return getattr(error, "_message", str(error))


class naming:
    """A block whose errors of use lead with the user's line and the name of a function.

    Of blocks within blocks the outermost names the function: the one that the user called.
    """

    def __init__(self, function: str):
        self._function = function

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ShardingError | CheckpointError):
            led: Any = type(error)(located(self._function, bare(error)))
            led._message = bare(error)
            try:
                raise led from error.__cause__
            finally:
                del led, error, trace  # or this frame holds the error, which holds this frame


def name_of(tensor: torch.Tensor, fallback: str) -> str:
    """What the user calls ``tensor``: a variable, or a parameter of a module in one.

    Looks only where the error was raised from, so it costs nothing while all is well.
    """
    frame = user_frame()
    scopes = [] if frame is None else [frame.f_locals, frame.f_globals]
    for scope in scopes:
        for name, value in list(scope.items()):
            if value is tensor:
                return name
    for scope in scopes:
        for name, value in list(scope.items()):
            if isinstance(value, torch.nn.Module):
                for path, parameter in value.named_parameters():
                    if parameter is tensor:
                        return f"{name}.{path}"
    return fallback
