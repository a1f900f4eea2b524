# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.fsdp.utils: modules that are computed again in backward."""

import functools
from typing import Any

import torch

from spmdx._xla.device.absent import absent
from spmdx.torch_xla.utils.checkpoint import checkpoint


def checkpoint_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Let a module keep its inputs only, and be computed again in backward; in place.

    A call that is given no tensor with ``requires_grad`` keeps what it computes, as in torch_xla:
    its parameters get no gradients otherwise.

    Args:
        module: of any class.
        *args: as for ``torch_xla.utils.checkpoint.checkpoint``.
        **kwargs: as these.

    Returns:
        ``module`` itself.
    """
    forward = module.forward

    @functools.wraps(forward)
    def again(*inputs: Any, **named: Any) -> Any:
        given = (*inputs, *named.values())
        if not any(isinstance(t, torch.Tensor) and t.requires_grad for t in given):
            return forward(*inputs, **named)

        def called(*values: Any) -> Any:
            by_name = zip(named, values[len(inputs) :], strict=True)
            return forward(*values[: len(inputs)], **dict(by_name))

        return checkpoint(called, *given, *args, **kwargs)

    setattr(module, "forward", again)  # noqa: B010
    return module


__getattr__ = absent(
    "torch_xla.distributed.fsdp.utils",
    {"apply_xla_patch_to_nn_linear": "It is in torch_xla.distributed.spmd.xla_sharding."},
)
