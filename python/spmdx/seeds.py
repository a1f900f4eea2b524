# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the same on any mesh."""

import torch


def manual_seed(seed: int) -> torch.Generator:
    """Seed every generator, as ``torch.manual_seed``; numbers do not depend on the sharding.

    Args:
        seed: the seed.

    Returns:
        The CPU's generator, as ``torch.manual_seed`` does.

    Example:
        >>> import torch, spmdx
        >>> _ = spmdx.manual_seed(0)
        >>> a = torch.rand(4, device="spmdx").tolist()
        >>> _ = spmdx.manual_seed(0)
        >>> a == torch.rand(4, device="spmdx").tolist()
        True

    Source: Philox 4x32-10, Salmon et al., SC 2011.
    """
    return torch.manual_seed(seed)
