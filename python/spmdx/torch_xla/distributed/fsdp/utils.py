# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.fsdp.utils: modules that are computed again in backward."""

import functools
from typing import Any

import torch

from spmdx._xla.device.absent import absent
from spmdx.torch_xla.utils.checkpoint import checkpoint


def checkpoint_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Let a module keep its inputs only, and be computed again in backward; in place.

    Args:
        module: of any class.
        *args: as for ``torch_xla.utils.checkpoint.checkpoint``.
        **kwargs: as these.

    Returns:
        ``module`` itself.
    """
    forward = module.forward

    @functools.wraps(forward)
    def again(*inputs: Any) -> Any:
        return checkpoint(forward, *inputs, *args, **kwargs)

    setattr(module, "forward", again)  # noqa: B010
    return module


__getattr__ = absent(
    "torch_xla.distributed.fsdp.utils",
    {"apply_xla_patch_to_nn_linear": "It is in torch_xla.distributed.spmd.xla_sharding."},
)
