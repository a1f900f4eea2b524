# SPDX-License-Identifier: Apache-2.0
"""What a mesh is made of, checked: device ids, sizes of axes, and that the devices exist."""

from collections.abc import Sequence
from typing import Any

import spmdx._C as _C
from spmdx._base.arguments import integers
from spmdx._world.processes import device_count_for_mesh
from spmdx.errors import ShardingError

_MOST = 2**20  # devices of a mesh


def require_few(count: int) -> None:
    if count > _MOST:
        raise ShardingError(
            f"the mesh has more than {_MOST} devices. Expected no more. Make an axis smaller."
        )


def device_ids_of(ids: Any) -> list[int]:
    found = integers(ids[: _MOST + 1] if isinstance(ids, range) else ids, "device_ids")
    require_few(len(found))
    return found


def shape_of(sizes: Any) -> list[int]:
    given = sizes if isinstance(sizes, tuple | list) else ()
    mend = "Write range(8) or (4, 2)."
    if given and all(isinstance(size, str) for size in given):  # what comes first was left out
        mend = (
            "Write device ids first, then the shape, then the names: "
            "spmdx.Mesh(range(8), (4, 2), ('data', 'model'))."
        )
    return integers(sizes, "mesh_shape", mend)


def require_devices(ids: Sequence[int]) -> None:
    """Raise ShardingError unless this machine has all these devices."""
    _C.note_use()
    count = device_count_for_mesh()
    missing = [i for i in ids if i >= count]
    if missing:
        raise ShardingError(
            f"the mesh wants device {missing[0]}, but there are {count} devices "
            f"(0 to {count - 1}). Expected ids below {count}. Set SPMDX_NUM_DEVICES="
            f"{max(ids) + 1}, call spmdx.runtime.set_device_count({max(ids) + 1}) "
            "first, or make the mesh smaller."
        )
