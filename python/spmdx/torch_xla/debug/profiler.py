# SPDX-License-Identifier: Apache-2.0
"""torch_xla.debug.profiler: names for parts of a program, as torch.profiler shows them."""

import functools
from collections.abc import Callable
from typing import Any

from torch.profiler import record_function

from spmdx._xla.device.absent import absent

_ADVICE = "Use torch.profiler.profile(): it shows steps, ops and collectives."


class Trace(record_function):
    """A block with a name in the profile.

    Args:
        name: the name.
        **kwargs: shown beside it.
    """

    def __init__(self, name: str, **kwargs: Any):
        super().__init__(name, str(kwargs) if kwargs else None)


class StepTrace(Trace):
    """A block that is a step, with a name in the profile.

    Args:
        name: the name.
        **kwargs: shown beside it.
    """


def trace_me(scope: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function whose calls have a name in the profile.

    Args:
        scope: the name.

    Returns:
        What a ``with`` takes.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with Trace(scope):
                return function(*args, **kwargs)

        return named

    return decorate


__getattr__ = absent(
    "torch_xla.debug.profiler",
    {
        name: _ADVICE
        for name in ("start_server", "trace", "trace_detached", "start_trace", "stop_trace")
    },
)
