# SPDX-License-Identifier: Apache-2.0
"""How much memory a device has for a stage of a pipeline."""

import re

from spmdx.errors import ShardingError, naming

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

_limit: int | None = None


def _bytes_of(text: str) -> int | None:
    """What "24 GiB" says; None where it says nothing."""
    found = re.fullmatch(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})\s*", text)
    return None if found is None else int(float(found[1]) * UNITS[found[2]])


def set_memory_limit(limit: int | str | None) -> None:
    """Say how many bytes a device has for what a stage of a pipeline keeps.

    Where :func:`spmdx.nn.pipeline` chooses the cuts of a model, it chooses among those where every
    stage fits: parameters, their gradients, two values of the optimizer for each of them, and the
    activations of the microbatches in flight. Cuts that were chosen before stay.

    Args:
        limit: bytes a device, or a text like ``"24 GiB"``; None: no limit.

    Raises:
        ShardingError: it is no number of bytes.

    Example:
        >>> import spmdx
        >>> spmdx.set_memory_limit("24 GiB")
        >>> spmdx.get_memory_limit()
        25769803776
        >>> spmdx.set_memory_limit(None)

    Source: the memory constraint of Alpa's stage construction, arXiv:2201.12023, section 5.2.
    """
    global _limit
    with naming("set_memory_limit"):
        found = _bytes_of(limit) if isinstance(limit, str) else limit
        if limit is not None and (isinstance(found, bool) or not isinstance(found, int)):
            raise ShardingError(
                f"the limit is {limit!r}. Expected a whole number of bytes, a text of a number and "
                f"{', '.join(UNITS)}, or None for no limit. Write '24 GiB'."
            )
        if found is not None and not 0 < found < 2**63:
            raise ShardingError(
                f"the limit is {limit!r}. Expected more than 0 bytes, and less than 2**63. "
                "Write None for no limit."
            )
        _limit = found


def get_memory_limit() -> int | None:
    """The limit that :func:`set_memory_limit` set.

    Returns:
        Bytes a device; None where there is no limit.

    Example:
        >>> import spmdx
        >>> spmdx.get_memory_limit() is None
        True
    """
    return _limit
