# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.scan_layers: layers one after the other."""

from collections.abc import Iterable
from typing import Any

import torch


def scan_layers(
    layers: Iterable[torch.nn.Module],
    input_data: Any,
    partition_fn: Any = None,
    is_layer_pure: bool = False,
) -> Any:
    """What the last layer makes of what the one before made, and so on.

    Args:
        layers: modules of one form.
        input_data: what the first one is given.
        partition_fn: kept for programs that give it: layers are recorded, and planned as one.
        is_layer_pure: kept for programs that give it.

    Returns:
        What the last one made.
    """
    for layer in layers:
        input_data = layer(input_data)
    return input_data
