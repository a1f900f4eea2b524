# SPDX-License-Identifier: Apache-2.0
"""States of models and optimizers, whole on the host for files; that of the generator."""

import os
from typing import Any

import torch

from spmdx._base.own_devices import NAMES
from spmdx._data.batches import map_tensors


def on_host(value: Any) -> Any:
    """The same structure with every tensor of the device whole on the host.

    All processes have to call it, since each holds parts. Tensors that are one stay one.
    """
    copies: dict[int, torch.Tensor] = {}

    def copied(_: Any, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type not in NAMES:
            return tensor.detach()
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().cpu()
        return copies[id(tensor)]

    return map_tensors(copied, value)


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state of a model, whole on the host; tied weights stay tied. All processes call it."""
    return on_host(model.state_dict(keep_vars=True))


def save_random_state(path: str) -> None:
    """Write the state of the device's generator to a file."""
    torch.save(torch.get_device_module("spmdx").get_rng_state(), path)


def load_random_state(path: str) -> None:
    """Take the state that was written, if there is such a file: plain frames write none."""
    if os.path.isfile(path):
        torch.get_device_module("spmdx").set_rng_state(torch.load(path, weights_only=True))
