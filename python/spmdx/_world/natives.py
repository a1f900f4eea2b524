# SPDX-License-Identifier: Apache-2.0
"""Whether moves between processes are messages, or collectives that the backend has itself."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

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


class Policy(NamedTuple):
    """What processes agree on when they meet: ``way`` is one of ``WAYS``.

    Where no topology tells how long native collectives take, they go the way ``unmeasured``.
    """

    way: str
    unmeasured: str
    sums: bool


_policy = Policy("direct", "direct", True)


def policy() -> Policy:
    """What the processes of the program have agreed on."""
    return _policy


def settle(told: Mapping[str, Any], carrier: str) -> None:
    """Plan collectives as this process has told the others, for the backend of this name.

    NCCL's own collectives are taken to be faster than messages, and those of others to be slower.
    """
    global _policy
    unmeasured = "native" if carrier == "nccl" else "direct"
    _policy = Policy(told["collectives"], unmeasured, not told["deterministic"])
    _plan(_policy)


def introduction() -> dict[str, Any]:
    """What this process tells the others.

    Raises:
        ShardingError: a variable says what it cannot.
    """
    return {"collectives": way(), "deterministic": deterministic()}


@contextlib.contextmanager
def planned(asked: str) -> Iterator[None]:
    """All collectives go this way within."""
    _plan(Policy(asked, asked, True))
    try:
        yield
    finally:
        _plan(_policy)


def _plan(wanted: Policy) -> None:
    way, unmeasured, sums = wanted
    _C.set_natives(None if way == "auto" else way, unmeasured, sums)
