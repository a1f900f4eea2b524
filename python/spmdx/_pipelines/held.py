# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model that stages hold."""

import torch


def tensors_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, a shared one by its first, in the order of the modules."""
    seen: dict[int, str] = {}
    found: dict[str, torch.Tensor] = {}
    for prefix, module in model.named_modules():
        own = [*module._parameters.items(), *module._buffers.items()]
        for name, tensor in own:
            full = f"{prefix}.{name}" if prefix else name
            if tensor is not None and seen.setdefault(id(tensor), full) == full:
                found[full] = tensor
    return found
