# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.xla_sharding: the older name of torch_xla.distributed.spmd."""

from spmdx.torch_xla.distributed.spmd import *  # noqa: F403
from spmdx.torch_xla.distributed.spmd import __all__ as __all__
