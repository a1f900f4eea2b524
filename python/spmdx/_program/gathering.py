# SPDX-License-Identifier: Apache-2.0
"""How much memory gathered parameters may take between forward and backward."""

import spmdx._C as _C
from spmdx.errors import ShardingError, naming


def set_gather_budget(num_bytes: int | None) -> None:
    """Say how many bytes of gathered parameters a device may keep from forward to backward.

    A sharded parameter that is used whole is gathered. With a budget of 0, the default, it is
    dropped after its last use in the forward pass and gathered again for the backward pass: the
    least memory. What the budget pays for is gathered once and kept, those first that save the
    most time for their bytes. Plans made with another budget are forgotten.

    Args:
        num_bytes: bytes a device; None: no limit, every parameter is gathered once.

    Raises:
        ShardingError: it is no number of bytes.

    Example:
        >>> import spmdx
        >>> spmdx.set_gather_budget(2 * 2**30)
        >>> spmdx.get_gather_budget()
        2147483648
        >>> spmdx.set_gather_budget(0)

    Source:
        0 and None are ``reshard_after_forward=True`` and ``False`` of PyTorch's ``fully_shard``.
    """
    with naming("set_gather_budget"):
        if isinstance(num_bytes, bool) or not (num_bytes is None or isinstance(num_bytes, int)):
            raise ShardingError(
                f"the budget is {num_bytes!r}. Expected a whole number of bytes, or None for no "
                "limit. Write 2 * 2**30 for 2 GiB."
            )
        if num_bytes is not None and not 0 <= num_bytes < 2**63:
            raise ShardingError(
                f"the budget is {num_bytes} bytes. Expected 0 or more, and less than 2**63. "
                "Write None for no limit."
            )
        _C.set_gather_budget(num_bytes)


def get_gather_budget() -> int | None:
    """The budget that :func:`set_gather_budget` set.

    Returns:
        Bytes a device; None where there is no limit.

    Example:
        >>> import spmdx
        >>> spmdx.get_gather_budget()
        0
    """
    return _C.gather_budget()
