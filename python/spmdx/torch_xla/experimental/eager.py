# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.eager: who asks for eager mode gets its values; ops are recorded."""

import contextlib
import warnings
from collections.abc import Iterator

_SAID = (
    "eager_mode(True): values are those of eager mode, but ops are recorded and run by steps, as "
    "without it. print and .item() run what they need; torch_xla.sync() runs the rest."
)
_asked = [False]


def eager_mode(enable: bool) -> None:
    """Ask for eager mode, with a warning that ops are recorded all the same.

    Args:
        enable: whether the program expects every op to run where it is called.
    """
    if enable and not _asked[0]:
        warnings.warn(_SAID, stacklevel=2)
    _asked[0] = bool(enable)


def is_eager_mode() -> bool:
    """Whether eager mode was asked for."""
    return _asked[0]


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[None]:
    """A block in which eager mode is asked for, or is not.

    Args:
        enable: as of ``eager_mode``.
    """
    before = is_eager_mode()
    eager_mode(enable)
    try:
        yield
    finally:
        _asked[0] = before
