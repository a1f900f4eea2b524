# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental: eager mode, FSDPv2, loops, checkpoints."""

from spmdx.torch_xla.experimental.eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = ["eager_mode", "eager_mode_context", "is_eager_mode"]
