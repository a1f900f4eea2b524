# SPDX-License-Identifier: Apache-2.0
"""What tests of shared memory have in common: an act gives on meshes what it gives on the CPU."""

import spmdx
import torch

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

MESHES = [None, 2, 3, 4, 8]


def on_device(x, devices):
    x = x.to("spmdx")
    if devices is None:
        return x
    mesh = spmdx.Mesh(range(devices), (devices,), ("a",))
    return spmdx.mark_sharding(x, mesh, ("a",) + (None,) * (x.dim() - 1))


def same(act, x, devices=None):
    got, expected = act(on_device(x.clone(), devices)), act(x.clone())
    assert got.stride() == expected.stride()
    assert torch.equal(got.detach().cpu(), expected.detach())
