# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the same on any mesh."""

import torch

from spmdx.errors import ShardingError, naming


def manual_seed(seed: int) -> torch.Generator:
    """Seed every generator, as ``torch.manual_seed``; numbers do not depend on the sharding.

    Args:
        seed: from -2**63 to 2**64 - 1.

    Returns:
        The CPU's generator, as ``torch.manual_seed`` does.

    Raises:
        ShardingError: it is no such number.

    Example:
        >>> import torch, spmdx
        >>> _ = spmdx.manual_seed(0)
        >>> a = torch.rand(4, device="spmdx").tolist()
        >>> _ = spmdx.manual_seed(0)
        >>> a == torch.rand(4, device="spmdx").tolist()
        True

    Source: Philox 4x32-10, Salmon et al., SC 2011.
    """
    try:
        number = int(seed)
    except (TypeError, ValueError, OverflowError):
        number = 2**64
    if not -(2**63) <= number < 2**64:
        with naming("manual_seed"):
            raise ShardingError(
                f"the seed is {seed!r}. Expected an int from -2**63 to 2**64 - 1. Write 0."
            )
    return torch.manual_seed(number)
