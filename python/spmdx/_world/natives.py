# SPDX-License-Identifier: Apache-2.0
"""Whether moves between processes are messages, or collectives that the backend has itself."""

import os

from spmdx.errors import ShardingError

WAYS = ("direct", "native")


def way() -> str:
    """One of ``WAYS``: what ``SPMDX_COLLECTIVES`` says.

    Raises:
        ShardingError: it says something else.
    """
    text = os.environ.get("SPMDX_COLLECTIVES", "").strip() or WAYS[0]
    if text not in WAYS:
        raise ShardingError(
            f"SPMDX_COLLECTIVES is {text!r}. Expected 'direct' (messages between two processes "
            "each) or 'native' (the backend's own collectives). Unset it: moves are direct then."
        )
    return text


def deterministic() -> bool:
    """Whether sums have the same bits for any number of processes: ``SPMDX_DETERMINISTIC``.

    Raises:
        ShardingError: it is neither 0 nor 1.
    """
    text = os.environ.get("SPMDX_DETERMINISTIC", "").strip() or "0"
    if text not in ("0", "1"):
        raise ShardingError(
            f"SPMDX_DETERMINISTIC is {text!r}. Expected 1 (sums are added up in the same order by "
            "any number of processes) or 0. Write SPMDX_DETERMINISTIC=1, or unset it."
        )
    return text == "1"


def wanted() -> tuple[bool, bool]:
    """Whether rows are gathered, and whether sums are made, by native collectives.

    Raises:
        ShardingError: a variable says what it cannot.
    """
    native = way() == "native"
    return native, native and not deterministic()
