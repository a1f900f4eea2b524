# SPDX-License-Identifier: Apache-2.0
"""Groups of backends that other packages register with torch.distributed, as HCCL's is."""

from typing import Any

import torch.distributed as dist

from spmdx._world.store import FAR
from spmdx.errors import ShardingError

NAMES = ("hccl",)


def require(name: str) -> None:
    """Return if a backend of this name carries what lies in the memory of hosts.

    Raises:
        ShardingError: there is none, or it carries what lies elsewhere.
    """
    if not dist.is_backend_available(name):
        raise ShardingError(
            f"SPMDX_COMM is {name!r}, and no package has registered a backend of that name with "
            "torch.distributed. Expected one, imported before the first step; torch_npu, which has "
            "Huawei's, cannot be imported beside spmdx. Write SPMDX_COMM=gloo."
        )
    places = dist.Backend.backend_capability.get(name, [])
    if "cpu" not in places:
        raise ShardingError(
            f"SPMDX_COMM is {name!r}, and the backend of that name carries what lies on "
            f"{' or '.join(map(repr, places)) or 'nothing'}. Expected one for 'cpu': shards lie in "
            "the memory of the host. Write SPMDX_COMM=gloo."
        )


def group(name: str, store: Any, index: int, count: int) -> Any:
    """A c10d backend among ``count`` processes, of which this one is ``index``.

    Raises:
        ShardingError: what was registered makes something else.
    """
    plugin = dist.Backend._plugins[name.upper()]
    if plugin.extended_api:
        made = plugin.creator_fn(_options(store, index, count), None)
    else:
        made = plugin.creator_fn(store, index, count, FAR)
    if not isinstance(made, dist._Backend):
        raise ShardingError(
            f"the backend {name!r} made a {type(made).__name__}. Expected a backend of c10d. Write "
            "SPMDX_COMM=gloo."
        )
    return made


def _options(store: Any, index: int, count: int) -> Any:
    """As torch.distributed gives them to backends that want more than a store."""
    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store, options.timeout = store, FAR
    options.group_rank, options.group_size = index, count
    options.group_id, options.global_ranks_in_group = "spmdx", list(range(count))
    return options
