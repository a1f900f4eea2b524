# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.assume_pure: functions that are traced once are recorded again."""

from collections.abc import Callable
from typing import Any

import torch

from spmdx._xla.device.absent import absent


def assume_pure(fn: Callable[..., Any], *, add_rng_seed_argument: bool = False) -> Any:
    """The function itself: recording again gives the same plan.

    Args:
        fn: a function of tensors.
        add_rng_seed_argument: must be false: random numbers are new in each call.

    Returns:
        ``fn``.

    Raises:
        NotImplementedError: a seed argument is asked for.
    """
    if add_rng_seed_argument:
        raise NotImplementedError(
            "assume_pure(add_rng_seed_argument=True) means nothing on spmdx. Leave it out: "
            "random numbers are new in each call."
        )
    return fn


class PureModule(torch.nn.Module):
    """A module that calls another one.

    Args:
        module: the other one.
    """

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self._module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)


__getattr__ = absent(
    "torch_xla.experimental.assume_pure",
    {"assume_pure_torch": "Call the function as it is: recording again gives the same plan."},
)
