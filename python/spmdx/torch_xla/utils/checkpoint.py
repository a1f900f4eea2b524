# SPDX-License-Identifier: Apache-2.0
"""torch_xla.utils.checkpoint: values that are computed again in backward."""

from collections.abc import Callable
from typing import Any

from torch.utils.checkpoint import checkpoint as _checkpoint


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = True,
    preserve_rng_state: bool = True,
) -> Any:
    """Call a function, keep its inputs only, and compute it again in backward.

    Args:
        function: of tensors.
        *args: its arguments.
        use_reentrant: must be true, as in torch_xla.
        preserve_rng_state: whether random numbers are the same again.

    Returns:
        What the function gives.

    Raises:
        ValueError: ``use_reentrant`` is false.
    """
    if not use_reentrant:
        raise ValueError(
            "use_reentrant is False, which torch_xla does not take. Use torch.utils.checkpoint."
        )
    return _checkpoint(function, *args, use_reentrant=True, preserve_rng_state=preserve_rng_state)
