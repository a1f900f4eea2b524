# SPDX-License-Identifier: Apache-2.0
"""Why there is no strategy of a family."""

from collections.abc import Iterable

import spmdx._C as _C
from spmdx._auto.estimates import Estimates
from spmdx._auto.space import Space

FAMILIES = "data", "tensor", "pipeline", "hybrid"


def unfit(families: Iterable[str], space: Space, estimates: Estimates) -> dict[str, str]:
    """By family that is not among these, why.

    Args:
        families: of which there are strategies.
        space: what was searched.
        estimates: of that.
    """
    if space.devices == 1:
        return {}
    why = {
        "data": _no_data(space),
        "tensor": _no_zero(estimates) or _no_tensor(space, estimates),
        "pipeline": _no_zero(estimates) or _no_pipeline(space, estimates),
        "hybrid": _no_two(space.devices),
    }
    sizes = "the step raises, or computes otherwise, for all microbatches of such a size"
    there = set(families)
    return {family: why[family] or sizes for family in FAMILIES if family not in there}


def _no_data(space: Space) -> str:
    if space.samples % space.devices == 0:
        return ""
    return f"a batch of {space.samples} is no multiple of {space.devices} samples"


def _no_zero(estimates: Estimates) -> str:
    if 0 in estimates.zero:
        return ""
    stages = ", ".join(map(str, estimates.zero))
    return f'zero has {stages}, which shares along "data", and not 0'


def _no_tensor(space: Space, estimates: Estimates) -> str:
    if any(dim is not None for dim in estimates.cuts_for(space.devices, space.devices).dims):
        return ""
    return f"no dim of a parameter is a multiple of {space.devices}"


def _no_pipeline(space: Space, estimates: Estimates) -> str:
    if not space.schedules:
        return "no schedule may be used"
    chunks = {name: _C.make_schedule(name, 2, 1).chunks for name in space.schedules}
    name = min(chunks, key=lambda name: chunks[name])
    stages = space.devices * chunks[name]
    if estimates.parts >= stages:
        return ""
    said = f"the {stages} stages of {name}" if chunks[name] > 1 else f"{stages} stages"
    return f"the model has {estimates.parts} parts that hold parameters, too few for {said}"


def _no_two(devices: int) -> str:
    if all(devices % n for n in range(2, devices)):
        return f"{devices} is no product of two sizes"
    return "no two axes divide the batch, dims of parameters and the parts of the model"
