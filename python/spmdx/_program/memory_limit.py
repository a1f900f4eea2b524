# SPDX-License-Identifier: Apache-2.0
"""How much memory a device has."""

import contextlib
from collections.abc import Iterator

import spmdx._C as _C
from spmdx._base.sizes import UNITS, bytes_of
from spmdx.errors import ShardingError, naming


def set_memory_limit(limit: int | str | None, *, recompute: bool = True) -> None:
    """Say how many bytes a device has.

    Where a step would need more, what costs least time for the bytes that it holds is computed
    again instead of held, as activations between forward and backward pass; results stay the same
    to the bit, and ``explain().memory.recomputed`` says what it is and what it costs. A step that
    needs more even so is not run: it raises, and says at which op it holds most, and what.
    What was traced stays, so that the limit can be raised and the step tried again.
    Where :func:`spmdx.nn.pipeline` chooses the cuts of a model, it chooses among those where every
    stage fits: parameters, their gradients, two values of the optimizer for each of them, and the
    activations of the microbatches in flight. Cuts that were chosen before stay.

    Args:
        limit: bytes a device, or a text like ``"24 GiB"``; None: no limit.
        recompute: whether plans may compute values again.

    Raises:
        ShardingError: an argument is of another kind; or later, led by the user's line, where a
            step needs more.

    Example:
        >>> import spmdx
        >>> spmdx.set_memory_limit("24 GiB")
        >>> spmdx.get_memory_limit()
        25769803776
        >>> spmdx.set_memory_limit(None)

    Source: T. Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174; of
    cuts, the memory constraint of Alpa's stage construction, arXiv:2201.12023, section 5.2.
    """
    with naming("set_memory_limit"):
        found = bytes_of(limit) if isinstance(limit, str) else limit
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
        if not isinstance(recompute, bool):
            raise ShardingError(f"recompute is {recompute!r}. Expected a bool. Write False.")
        _C.set_memory_limit(found, recompute)


def limit_to(limit: int | None) -> None:
    """Another limit in bytes, or none; plans compute again, or do not, as before."""
    _C.set_memory_limit(limit)


def get_memory_limit() -> int | None:
    """The limit that :func:`set_memory_limit` set.

    Returns:
        Bytes a device; None where there is no limit.

    Example:
        >>> import spmdx
        >>> spmdx.get_memory_limit() is None
        True
    """
    return _C.memory_limit()


@contextlib.contextmanager
def without_memory_limit() -> Iterator[int | None]:
    """A block in which steps are not refused; gives the limit that holds outside of it."""
    limit = get_memory_limit()
    _C.set_memory_limit(None)
    try:
        yield limit
    finally:
        _C.set_memory_limit(limit)
