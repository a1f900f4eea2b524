# SPDX-License-Identifier: Apache-2.0
"""What is reached from the attributes of modules, through containers and never through objects."""

import random
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import spmdx._C as _C

CONTAINERS = OrderedDict, dict, list, set, deque  # whose contents are put back in place
WALKED = (*CONTAINERS, tuple, frozenset)


def reached_from(model: torch.nn.Module, called_with: Any) -> list[Any]:
    """Containers, tensors and generators that modules keep, or that the call gets, each once."""
    seen: dict[int, Any] = {}
    wanted = (*WALKED, torch.Tensor, *generators())
    waiting = [called_with, parametrize._cache, *map(vars, model.modules())]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or not isinstance(value, wanted):
            continue
        seen[id(value)] = value
        if isinstance(value, WALKED):
            waiting.extend(_values(value))
    return list(seen.values())


def _values(container: Any) -> Iterable[Any]:
    return dict.values(container) if isinstance(container, dict) else iter(container)


def generators() -> tuple[type, ...]:
    """The classes of generators of random numbers, those of numpy if it is imported."""
    numpy = sys.modules.get("numpy")
    own: tuple[type, ...] = torch.Generator, random.Random
    return own if numpy is None else (*own, numpy.random.Generator, numpy.random.RandomState)


def tensors_among(values: Iterable[Any]) -> list[torch.Tensor]:
    """Those that are tensors of the device, or on the CPU with memory of their own."""
    return [t for t in values if isinstance(t, torch.Tensor) and (_C.is_lazy(t) or _is_on_cpu(t))]


def _is_on_cpu(tensor: torch.Tensor) -> bool:
    """Whether it is on the CPU, and is no stand-in for others, nor one of a special layout."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or isinstance(tensor, FakeTensor):
        return False
    if is_traceable_wrapper_subclass(tensor) or torch.nn.parameter.is_lazy(tensor):
        return False
    return not (tensor.is_quantized or tensor.is_nested)
