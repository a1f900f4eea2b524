# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.distributed_checkpoint: shards in DCP's files, and saving by steps."""

from spmdx.torch_xla.experimental.distributed_checkpoint.manager import CheckpointManager
from spmdx.torch_xla.experimental.distributed_checkpoint.planners import (
    SPMDLoadPlanner,
    SPMDSavePlanner,
)
from spmdx.torch_xla.experimental.distributed_checkpoint.util import prime_optimizer

__all__ = ["CheckpointManager", "SPMDLoadPlanner", "SPMDSavePlanner", "prime_optimizer"]
