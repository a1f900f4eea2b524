# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.gradient_accumulation: the gradients of several batches in one step."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    carried_tensors: tuple[torch.Tensor, ...] | None = None,
) -> Any:
    """Call ``train_step`` for each row of tensors, and add up the gradients of the mean loss.

    Args:
        train_step: called with a row of each tensor and the carried ones; gives a loss, or a loss
            and the carried ones that come next.
        iterable_tensors: tensors of the same length.
        model: the module whose parameters get gradients.
        carried_tensors: a tuple of what goes from call to call.

    Returns:
        The sum of the losses over their number; with carried tensors, these as well.

    Raises:
        ValueError: no tensors, or tensors of different lengths.
    """
    lengths = {len(t) for t in iterable_tensors}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            f"iterable_tensors have the lengths {sorted(lengths)}. Expected one, above 0."
        )
    (count,) = lengths
    total: Any = torch.zeros(1, device="spmdx")
    carried = tuple(carried_tensors or ())
    for row in range(count):
        made = train_step(*[t[row] for t in iterable_tensors], *carried)
        loss, *rest = made if isinstance(made, tuple) else (made,)
        carried = tuple(rest)
        (loss / count).backward()
        total = total + loss.detach() / count
    return (total, *carried) if carried_tensors else total
