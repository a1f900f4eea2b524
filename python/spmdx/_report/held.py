# SPDX-License-Identifier: Apache-2.0
"""How many bytes of tensors, modules and optimizers one device holds."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree

from spmdx._annotate.sharding import get_sharding
from spmdx.errors import ShardingError, naming


def local_bytes(held: Any) -> int:
    """The bytes of ``held`` on the device that holds most of them.

    Args:
        held: a tensor of any device; a module, of which parameters and buffers count; an
            optimizer, of which its state counts; or dicts, lists and tuples of these.

    Returns:
        A number of bytes. A tensor that occurs twice counts once; what is not sharded counts as
        a whole.

    Raises:
        ShardingError: there is something else in it that is no number, text or None.

    Example:
        >>> import torch, spmdx
        >>> layer = torch.nn.Linear(8, 32).to("spmdx")
        >>> spmdx.debug.local_bytes(layer)
        1152
        >>> _ = spmdx.fully_shard(layer, spmdx.get_1d_mesh("fsdp"))
        >>> spmdx.debug.local_bytes(layer)
        144
    """
    with naming("local_bytes"):
        tensors = {id(tensor): tensor for tensor in _tensors(held)}
    return sum(map(_bytes, tensors.values()))


def _tensors(held: Any) -> Iterator[torch.Tensor]:
    for leaf in _pytree.tree_leaves(held):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, torch.nn.Module):
            yield from leaf.parameters()
            yield from leaf.buffers()
        elif isinstance(leaf, torch.optim.Optimizer):
            yield from _tensors(list(leaf.state.values()))
        elif leaf is not None and not isinstance(leaf, bool | int | float | complex | str):
            raise ShardingError(
                f"the argument holds a {type(leaf).__name__}. Expected tensors, modules, "
                "optimizers, or dicts and lists of them. Pass model, optimizer or a state dict."
            )


def _bytes(tensor: torch.Tensor) -> int:
    sharding = get_sharding(tensor)
    if sharding is None:
        return tensor.numel() * tensor.element_size()
    boxes = sharding.boxes(tensor.shape)
    return max(math.prod(s.stop - s.start for s in box) for box in boxes) * tensor.element_size()
