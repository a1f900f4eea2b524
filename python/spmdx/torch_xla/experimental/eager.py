# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.eager: a device that records has no eager mode."""

import contextlib
from collections.abc import Iterator

from spmdx._xla.device.absent import refuse

_ADVICE = "Leave it out: ops are recorded, and print and .item() run what they need."


def eager_mode(enable: bool) -> None:
    """Raise NotImplementedError if it is asked for.

    Args:
        enable: whether every op runs where it is called.
    """
    if enable:
        refuse("eager_mode(True)", _ADVICE)


def is_eager_mode() -> bool:
    """Whether every op runs where it is called: never."""
    return False


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[None]:
    """A block; raises NotImplementedError if the mode is asked for.

    Args:
        enable: whether every op runs where it is called.
    """
    eager_mode(enable)
    yield
