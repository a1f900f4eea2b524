# SPDX-License-Identifier: Apache-2.0
"""How many devices this process plays: said in the environment or by a call, then fixed."""

import os

from spmdx.errors import ShardingError, located

_count: int | None = None
_is_fixed = False


def _count_from_environment() -> int:
    text = os.environ.get("SPMDX_NUM_DEVICES", "1")
    if not text.strip().isdigit() or int(text) < 1:
        raise ShardingError(
            f"SPMDX_NUM_DEVICES is {text!r}. Expected a number of devices of at least 1. "
            "Write SPMDX_NUM_DEVICES=8."
        )
    return int(text)


def choose_count(n: int) -> None:
    """What :func:`spmdx.runtime.set_device_count` does."""
    global _count
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ShardingError(
            located(
                "set_device_count",
                f"{n!r} is no number of devices. Expected an int of at least 1. Write 8.",
            )
        )
    if _is_fixed and n != _count:
        raise ShardingError(
            located(
                "set_device_count",
                f"a mesh was made for {_count} devices already, {n} came too late. Expected "
                "the call before the first mesh. Move it to the top, or set SPMDX_NUM_DEVICES.",
            )
        )
    _count = n


def own_count() -> int:
    """The number of devices of this process."""
    return _count if _count is not None else _count_from_environment()


def fixed_count() -> int:
    """The same number, which cannot change from now on."""
    global _count, _is_fixed
    _count = own_count()
    _is_fixed = True
    return _count
