# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.distributed_checkpoint.util: an optimizer that has its state."""

import torch

from spmdx.torch_xla import torch_xla


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Give a new optimizer its state, so that one can be loaded into it.

    The state is that of a step whose gradients are zero. Parameters, and gradients that there
    were, are as before; what the optimizer knew of earlier steps is not.

    Args:
        optimizer: of parameters of the device.

    Returns:
        The optimizer itself.

    Example:
        >>> import torch
        >>> import spmdx.torch_xla.experimental.distributed_checkpoint as xc
        >>> layer = torch.nn.Linear(2, 2)
        >>> sorted(xc.prime_optimizer(torch.optim.Adam(layer.parameters())).state_dict()["state"])
        [0, 1]
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [(p, p.detach().clone(), p.grad) for p in parameters if p.requires_grad]
    for parameter, _, _ in before:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    with torch.no_grad():
        for parameter, value, gradient in before:
            parameter.copy_(value)
            parameter.grad = gradient
    torch_xla.sync()
    return optimizer
