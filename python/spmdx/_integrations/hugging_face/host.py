# SPDX-License-Identifier: Apache-2.0
"""States of models and optimizers: whole on the host for files, and back beside the parameters."""

from typing import Any

import torch

from spmdx._annotate.annotation import annotation_of
from spmdx._annotate.sharding import mark_sharding
from spmdx._base.own_devices import NAMES


def on_host(value: Any, copies: dict[int, torch.Tensor] | None = None) -> Any:
    """The same dicts and lists with every tensor of the device whole on the host.

    All processes have to call it, since each holds parts. Tensors that are one stay one.
    """
    copies = {} if copies is None else copies
    if isinstance(value, torch.Tensor):
        if value.device.type not in NAMES:
            return value.detach()
        if id(value) not in copies:
            copies[id(value)] = value.detach().cpu()
        return copies[id(value)]
    if isinstance(value, dict):
        made = type(value)()
        for key, entry in value.items():
            made[key] = on_host(entry, copies)
        return made
    if isinstance(value, list | tuple):
        return type(value)(on_host(entry, copies) for entry in value)
    return value


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state of a model, whole on the host; tied weights stay tied. All processes call it."""
    return on_host(model.state_dict(keep_vars=True))


def lie_as_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Mark what an optimizer holds of a parameter, and has its shape, as the parameter is."""
    for parameter, state in optimizer.state.items():
        if parameter.device.type not in NAMES:
            continue
        known = annotation_of(parameter)
        if known is None:
            continue
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                if value.device.type in NAMES:
                    mark_sharding(value, known.mesh, known.spec)
