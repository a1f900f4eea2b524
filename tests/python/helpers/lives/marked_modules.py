# SPDX-License-Identifier: Apache-2.0
"""A layer whose weight is annotated, and what tests of modules ask about it."""

import warnings

import spmdx
import torch
from torch import nn

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

MESHES = [(2,), (3,), (4,), (8,), (2, 2)]


def make_mesh(shape):
    devices = 1
    for extent in shape:
        devices *= extent
    return spmdx.Mesh(range(devices), shape, tuple("xy"[: len(shape)]))


def marked_linear(mesh, rows=8):
    layer = nn.Linear(3, rows)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    layer.to("spmdx")
    spmdx.mark_sharding(layer.weight, mesh, ("x", None))
    return layer


def is_marked(tensor, *spec):
    annotation = spmdx.get_annotation(tensor)
    return annotation is not None and annotation.spec == spec and tensor.partition_spec == spec


ROWS = torch.linspace(-1, 2, 15).view(5, 3)


def warned(act):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        act()
    return [str(w.message) for w in caught]
