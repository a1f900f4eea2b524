# SPDX-License-Identifier: Apache-2.0
"""Whether moves between processes are messages, or collectives that the backend has itself."""

import contextlib
import os
from collections.abc import Iterator

import torch

import spmdx._C as _C
from spmdx.errors import ShardingError

WAYS = ("auto", "direct", "native")


def way() -> str:
    """One of ``WAYS``: what ``SPMDX_COLLECTIVES`` says.

    Raises:
        ShardingError: it says something else.
    """
    text = os.environ.get("SPMDX_COLLECTIVES", "").strip() or WAYS[0]
    if text not in WAYS:
        raise ShardingError(
            f"SPMDX_COLLECTIVES is {text!r}. Expected 'auto' (of each collective what takes less "
            "time), 'direct' (messages between two processes each) or 'native' (the backend's own "
            "collectives). Unset it: that is 'auto'."
        )
    return text


def deterministic() -> bool:
    """Whether sums have the same bits for any number of processes.

    ``SPMDX_DETERMINISTIC`` says so, or ``torch.use_deterministic_algorithms``.

    Raises:
        ShardingError: the variable is neither 0 nor 1.
    """
    text = os.environ.get("SPMDX_DETERMINISTIC", "").strip() or "0"
    if text not in ("0", "1"):
        raise ShardingError(
            f"SPMDX_DETERMINISTIC is {text!r}. Expected 1 (sums are added up in the same order by "
            "any number of processes) or 0. Write SPMDX_DETERMINISTIC=1, or unset it."
        )
    return text == "1" or torch.are_deterministic_algorithms_enabled()


def plan(carrier: str) -> None:
    """Plan collectives as the variables say, for the backend of this name.

    Where no topology tells how long native ones take, NCCL's are taken to be faster than messages,
    and others' to be slower.
    """
    asked = way()
    unmeasured = "native" if carrier == "nccl" else "direct"
    _C.set_natives(None if asked == "auto" else asked, unmeasured, not deterministic())


@contextlib.contextmanager
def planned(asked: str, carrier: str) -> Iterator[None]:
    """All collectives go this way within."""
    _C.set_natives(asked, asked, True)
    try:
        yield
    finally:
        plan(carrier)
