# SPDX-License-Identifier: Apache-2.0
"""A function of fixed numbers on a line of devices, against plain PyTorch."""

import spmdx
import torch
from composites import compare

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
torch.set_num_threads(1)

SIZES = (2, 3, 4, 8)
BATCH, LAST = ("x", None), (None, "x")


def generator(seed):
    return torch.Generator().manual_seed(seed)


def numbers(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=generator(seed))


def chances(*shape, seed=0):
    return numbers(*shape, seed=seed).sigmoid()


def indices(high, *shape, seed=0):
    return torch.randint(high, shape, generator=generator(seed))


def flags(*shape):
    return numbers(*shape, seed=4) > 0


def line(devices):
    return spmdx.Mesh(range(devices), (devices,), ("x",))


def weighed(function):
    """The function, its results times random numbers."""

    def with_weights(*tensors):
        made = function(*tensors)
        results = made if isinstance(made, (tuple, list)) else [made]
        return [
            r * chances(*r.shape, seed=9).to(r.device) if r.is_floating_point() else r
            for r in results
        ]

    return with_weights


def ran_whole():
    """Ops that ran whole for want of a rule since the counters were reset."""
    spmdx.sync(wait=True)  # counters count steps that ended
    return spmdx.debug.fallbacks()


def agree(function, tensors, devices, placements, relative=1e-9):
    """For every placement as if nothing were cut; no op lacked a rule."""
    for specs in placements:
        spmdx.debug.reset_counters()
        compare(weighed(function), tensors, line(devices), specs, relative)
        assert ran_whole() == {}
