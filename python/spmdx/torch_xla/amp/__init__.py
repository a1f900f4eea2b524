# SPDX-License-Identifier: Apache-2.0
"""torch_xla.amp: autocast and loss scaling; they are PyTorch's own."""

from typing import Any

import torch
from torch.amp import GradScaler as _GradScaler

from spmdx.torch_xla.amp import syncfree

__all__ = ["GradScaler", "autocast", "syncfree"]


class autocast(torch.autocast):
    """Computes in a smaller dtype what can be, on the device.

    Args:
        device: the device, as torch_xla's programs give it.
        enabled: whether it does.
        dtype: the smaller dtype; None is bfloat16.
        cache_enabled: whether converted weights are kept while it lasts.
    """

    def __init__(
        self,
        device: Any = "xla",
        enabled: bool = True,
        dtype: torch.dtype | None = torch.bfloat16,
        cache_enabled: bool = True,
    ):
        super().__init__(
            "spmdx", dtype=dtype or torch.bfloat16, enabled=enabled, cache_enabled=cache_enabled
        )


class GradScaler(_GradScaler):
    """Scales losses so that small gradients are not lost; see ``torch.amp.GradScaler``.

    Args:
        *numbers: those of ``torch.amp.GradScaler`` from ``init_scale`` on.
        **options: as for ``torch.amp.GradScaler``.
    """

    def __init__(self, *numbers: Any, **options: Any):
        options.pop("use_zero_grad", None)
        super().__init__("spmdx", *numbers, **options)
