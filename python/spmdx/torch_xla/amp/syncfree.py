# SPDX-License-Identifier: Apache-2.0
"""torch_xla.amp.syncfree: optimizers that read no value; PyTorch's own read none on the device."""

from torch.optim import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
