# SPDX-License-Identifier: Apache-2.0
"""What the units of a model cost, as a chain in the order in which they ran."""

from collections.abc import Mapping
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh
from spmdx._pipelines.trial import Call, Trial
from spmdx._pipelines.units import Units

COPIES = 4  # of a parameter that learns: itself, its gradient, two values of the optimizer


def order_of(trial: Trial) -> dict[str, int]:
    """The place of each unit in the chain: that of its first call."""
    order: dict[str, int] = {}
    for call in trial.calls:
        order.setdefault(call.unit, len(order))
    return order


def owners_of(
    tensors: Mapping[str, torch.Tensor], model: torch.nn.Module, units: Units, trial: Trial
) -> dict[str, int]:
    """By name of a parameter or buffer, the place of the unit that holds it.

    A shared one is of the first unit that ran; one of a module that was opened is of the unit that
    ran next; one of a unit that did not run is beside the one before it.
    """
    order = order_of(trial)
    places: dict[int, int] = {}  # by id of a tensor
    for name, unit in units.whole.items():
        for tensor in [*unit.parameters(), *unit.buffers()]:
            if name in order:
                places[id(tensor)] = min(order[name], places.get(id(tensor), len(order)))
    for name, module in units.opened.items():
        if trial.starts.get(name, len(trial.calls)) == len(trial.calls):
            continue
        place = order[trial.calls[trial.starts[name]].unit]
        for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            places.setdefault(id(tensor), place)
    owners, last = {}, 0
    for name, tensor in tensors.items():
        last = owners[name] = places.get(id(tensor), last)
    return owners


def layers_of(
    trial: Trial,
    tensors: Mapping[str, torch.Tensor],
    owners: Mapping[str, int],
    mesh: Mesh,
    axis: str,
) -> list[dict[str, Any]]:
    """By place in the chain, times in ns and bytes of a device (``csrc/passes/pipeline``)."""
    order = order_of(trial)
    layers: list[dict[str, Any]] = [
        dict.fromkeys(("forward_ns", "backward_ns", "activation_bytes", "state_bytes"), 0)
        for _ in order
    ]
    for call in trial.calls:
        layer = layers[order[call.unit]]
        for what in ("forward_ns", "backward_ns", "activation_bytes"):
            layer[what] += getattr(call, what)
    for name, tensor in tensors.items():
        copies = COPIES if tensor.requires_grad else 1
        layers[owners[name]]["state_bytes"] += copies * _C.local_bytes(tensor)
    sent = _sent_behind(trial.calls, order, {_C.memory_id(t) for t in tensors.values()})
    for layer, count in zip(layers, sent, strict=True):
        layer["send_ns"] = _C.both_ways_ns(mesh._handle, axis, count)
    return layers


def _sent_behind(calls: list[Call], order: Mapping[str, int], kept: set[int]) -> list[int]:
    """By place, the bytes that later units read of what units up to there have made.

    What is made between two units counts as made behind the first of them, if it is no integer
    or truth: masks and positions are made where they are read.
    """
    made = {id(t): order[call.unit] for call in reversed(calls) for t in call.outputs}
    sent = [0] * len(order)
    read: dict[int, tuple[torch.Tensor, int]] = {}  # until which place
    for place, call in sorted(((order[c.unit], c) for c in calls), key=lambda pair: pair[0]):
        for tensor in call.inputs:
            if _C.memory_id(tensor) in kept:
                continue
            if id(tensor) not in made and tensor.requires_grad:
                made[id(tensor)] = place - 1
            if id(tensor) in made:
                read[id(tensor)] = tensor, place
    for key, (tensor, last) in read.items():
        for place in range(max(made[key], 0), last):
            sent[place] += _C.local_bytes(tensor)
    return sent
