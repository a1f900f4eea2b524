# SPDX-License-Identifier: Apache-2.0
"""Collectives of torch_xla's xla_model: after use_spmd there is one logical device."""

from collections.abc import Callable
from typing import Any

import torch

from spmdx._xla.device import steps

NO_REGION = "Use spmdx.shard_map and spmdx.collectives: there a program is that of one device."


def reduce_gradients(optimizer: torch.optim.Optimizer, groups: Any = None, **options: Any) -> None:
    """Do nothing: gradients are those of all devices as they are.

    Args:
        optimizer: any.
        groups: must be None: there is one logical device.
        **options: kept for programs that give them.
    """
    require_no_groups("reduce_gradients", groups)


def require_no_groups(name: str, groups: Any) -> None:
    if groups is not None:
        raise NotImplementedError(f"{name}(groups=…) means nothing on spmdx. {NO_REGION}")


def all_reduce(
    reduce_type: str,
    inputs: Any,
    scale: float = 1.0,
    groups: Any = None,
    pin_layout: bool = True,
) -> Any:
    """The reduction over the one logical device: what it was given, scaled.

    Args:
        reduce_type: one of the ``REDUCE_…`` of this module.
        inputs: a tensor, or a list that is reduced in place.
        scale: a factor.
        groups: must be None: there is one logical device.
        pin_layout: kept for programs that give it.

    Returns:
        A copy of a tensor; None for a list.

    Raises:
        NotImplementedError: groups are given.
    """
    require_no_groups("all_reduce", groups)
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if scale == 1.0 else inputs * scale
    for tensor in inputs:
        tensor.mul_(scale)
    return None


def all_gather(value: torch.Tensor, dim: int = 0, groups: Any = None, **options: Any) -> Any:
    """What the one logical device has: a copy of ``value``.

    Args:
        value: a tensor.
        dim: kept for programs that give it.
        groups: must be None: there is one logical device.
        **options: kept for programs that give them.

    Returns:
        A copy.

    Raises:
        NotImplementedError: groups are given.
    """
    require_no_groups("all_gather", groups)
    return value.clone()


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """What ``reduce_fn`` makes of the data of the one logical device.

    Args:
        tag: kept for programs that give it.
        data: anything.
        reduce_fn: called with a list.
    """
    return reduce_fn([data])


def rendezvous(tag: str, payload: bytes = b"", replicas: Any = ()) -> list[bytes]:
    """Wait until the device has run all; what each process gave: that of this one.

    Args:
        tag: the name of the place.
        payload: what this process gives.
        replicas: must be empty.
    """
    steps.sync_device(wait=True)
    steps.run_closures()
    return [payload]
