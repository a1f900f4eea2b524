# SPDX-License-Identifier: Apache-2.0
"""What goes up to the device and comes down from it, counted as torch_xla counts it.

torch_xla keeps what a program moves to the device on the host until something needs it there, and
until then knows no sharding of it. Programs can ask about that, so it is noted here.
"""

from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx import debug
from spmdx._annotate.spec import Sharding
from spmdx._xla.device import counters

_fresh: dict[int, int] = {}  # by the memory of what came up: how many ops were recorded before
_came: set[int] = set()  # the memory of all that came up in this step


def _recorded() -> int:
    return debug.counters()["ops_recorded"]


def noted(tensor: torch.Tensor, move: Callable[[], torch.Tensor]) -> Any:
    """What ``move`` makes of ``tensor``, counted if it crosses to the device or from it."""
    was, result = _C.is_lazy(tensor), move()
    is_now = isinstance(result, torch.Tensor) and _C.is_lazy(result)
    if is_now and not was:
        note(result)
    if was and not is_now:
        _count_gather(tensor)
        counters.count("ReplicateShardedData")
        counters.sample("InboundData", result.numel() * result.element_size())
        counters.sample("TransferFromDeviceTime", 0)
    return result


def _count_gather(tensor: torch.Tensor) -> None:
    handle = _C.sharding_of(tensor)
    if handle is None:
        return
    layout = Sharding(handle)
    if not layout.is_fully_replicated:
        counters.gathered((tuple(tensor.shape), tensor.dtype, repr(layout)))


def note(tensor: torch.Tensor) -> None:
    """Notes that ``tensor`` came up, if it is on the device."""
    if _C.is_lazy(tensor):
        _fresh[_C.memory_id(tensor)] = _recorded()
        _came.add(_C.memory_id(tensor))


def is_data(tensor: torch.Tensor) -> bool:
    """Whether it came up in this step: it is no result of an op."""
    return _C.memory_id(tensor) in _came


def is_fresh(tensor: torch.Tensor) -> bool:
    """Whether it came up in this step, and no op was recorded since."""
    before = _fresh.get(_C.memory_id(tensor))
    if before is not None and _recorded() > before:
        used(tensor)
        before = None
    return before is not None


def used(tensor: torch.Tensor) -> None:
    """Notes that the device has ``tensor`` now."""
    if _fresh.pop(_C.memory_id(tensor), None) is not None:
        counters.count("VirtualDeviceUsage")
        counters.sample("OutboundData", tensor.numel() * tensor.element_size())
        counters.sample("TransferToDeviceTime", 0)


def all_used() -> None:
    """A step ends: the device has all."""
    _fresh.clear()
    _came.clear()


def forget(tensor: torch.Tensor) -> None:
    """Notes that nothing is known of how ``tensor`` lies, until the next step ends."""
    _fresh[_C.memory_id(tensor)] = _recorded()
