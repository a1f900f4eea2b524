# SPDX-License-Identifier: Apache-2.0
"""torch_xla.amp: autocast and loss scaling; they are PyTorch's own."""

from typing import Any

import torch
from torch.amp import GradScaler as _GradScaler

from spmdx._xla.device.absent import absent


class autocast(torch.autocast):
    """Computes in a smaller dtype what can be, on the device.

    Args:
        device: the device, as torch_xla's programs give it.
        enabled: whether it does.
        dtype: the smaller dtype.
        cache_enabled: whether converted weights are kept while it lasts.
    """

    def __init__(
        self,
        device: Any = "xla",
        enabled: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        cache_enabled: bool = True,
    ):
        super().__init__("spmdx", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """Scales losses so that small gradients are not lost; see ``torch.amp.GradScaler``.

    Args:
        **options: as for ``torch.amp.GradScaler``.
    """

    def __init__(self, **options: Any):
        options.pop("use_zero_grad", None)
        super().__init__("spmdx", **options)


__getattr__ = absent("torch_xla.amp", {"syncfree": "Use torch.optim: its steps wait for nothing."})
