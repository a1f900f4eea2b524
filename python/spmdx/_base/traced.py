# SPDX-License-Identifier: Apache-2.0
"""How functions that PyTorch is taught meet torch.compile: as PyTorch's own do."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

import spmdx._C as _C
from spmdx._base.own_devices import NAMES

F = TypeVar("F", bound=Callable[..., Any])


def as_in_torch(function: F) -> F:
    """Lets torch.compile trace a function only as a part of others, like all code of PyTorch.

    Where a trace ends before the function, it would begin again inside.
    """
    frames = torch._C._dynamo.eval_frame
    only_inlined = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    frames.set_code_exec_strategy(function.__code__, only_inlined)
    return function


def untraced(function: F) -> F:
    """Lets torch.compile end a graph before a function, and trace nothing that it calls.

    For what is done to tensors of the device alone: its functions of C++ cannot be traced.
    """
    frames = torch._C._dynamo.eval_frame
    never = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    frames.set_code_exec_strategy(function.__code__, never)
    marked: Any = function  # Dynamo reads attributes of it
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = "it acts on tensors of the device where it is called"
    return function


@as_in_torch
def on_device(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is one of ours.

    What PyTorch is taught asks it of every tensor, in code that torch.compile traces, too. A trace
    breaks at a function of C++; out of a trace, a question in Python would be seen by the modes of
    torch.overrides.
    """
    if torch.compiler.is_dynamo_compiling():
        return tensor.device.type in NAMES
    return _C.is_lazy(tensor)
