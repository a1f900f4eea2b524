# SPDX-License-Identifier: Apache-2.0
"""The device's generator as torch_xla's xla_model hands it out: its state is one number."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from spmdx import manual_seed


def set_rng_state(seed: int, device: Any = None) -> None:
    """Set the state of the device's generator.

    Args:
        seed: what :func:`get_rng_state` gave, or any int.
        device: kept for programs that give it.
    """
    manual_seed(seed)


def get_rng_state(device: Any = None) -> int:
    """A number that :func:`set_rng_state` takes, drawn from the device's generator.

    Args:
        device: kept for programs that give it.

    Returns:
        A number.
    """
    module = torch.get_device_module("spmdx")
    kept = module.get_rng_state()
    drawn = int.from_bytes(bytes(kept.cpu().tolist()[:16]), "little")
    seed = (drawn ^ (drawn >> 64)) & (2**63 - 1)
    manual_seed(seed)
    return seed


@contextlib.contextmanager
def fork_rng(device: Any = None, enabled: bool = True) -> Iterator[None]:
    """A block after which the device's generator is as it was.

    Args:
        device: kept for programs that give it.
        enabled: whether it is.

    Returns:
        What a ``with`` takes.
    """
    module = torch.get_device_module("spmdx")
    kept = module.get_rng_state()
    yield
    if enabled:
        module.set_rng_state(kept)
