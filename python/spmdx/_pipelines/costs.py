# SPDX-License-Identifier: Apache-2.0
"""What the units of a model cost, as a chain in the order in which they ran."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.mesh import Mesh
from spmdx._pipelines.trial import Call, Trial
from spmdx._pipelines.units import Units

COPIES = 4  # of a parameter that learns: itself, its gradient, two values of the optimizer


@dataclass(frozen=True)
class Chain:
    """What stages are cut from: units in the order in which they first ran.

    A unit without a parameter or buffer of its own, as a head whose weight is that of an embedding,
    runs where its operands are: it counts as a part of the one before.

    Attributes:
        names: of the units, without those parts.
        of_unit: by name of a unit that ran, its place among ``names``.
        of_tensor: by name of a parameter or buffer, the place of the unit that holds it.
    """

    names: list[str]
    of_unit: dict[str, int]
    of_tensor: dict[str, int]


def chain_of(
    tensors: Mapping[str, torch.Tensor], model: torch.nn.Module, units: Units, trial: Trial
) -> Chain:
    """The chain of the units that ran, and who holds which tensor.

    A shared tensor is of the first unit that ran; one of a module that was opened is of the unit
    that ran next; one of a unit that did not run is beside the one before it.
    """
    order: dict[str, int] = {}
    for call in trial.calls:
        order.setdefault(call.unit, len(order))
    holders = _holders(order, units, trial)
    of_tensor, last = {}, 0
    for name, tensor in tensors.items():
        last = of_tensor[name] = holders.get(id(tensor), last)
    holding = set(of_tensor.values())
    names = [name for name, place in order.items() if place in holding]
    merged = [max(0, sum(h <= place for h in holding) - 1) for place in range(len(order))]
    return Chain(
        names,
        {name: merged[place] for name, place in order.items()},
        {name: merged[place] for name, place in of_tensor.items()} if merged else {},
    )


def _holders(order: Mapping[str, int], units: Units, trial: Trial) -> dict[int, int]:
    """By id of a tensor, the place in ``order`` of the unit that holds it."""
    places: dict[int, int] = {}
    for name, unit in units.whole.items():
        for tensor in [*unit.parameters(), *unit.buffers()]:
            if name in order:
                places[id(tensor)] = min(order[name], places.get(id(tensor), len(order)))
    for name, module in units.opened.items():
        start = trial.starts.get(name, len(trial.calls))
        if start < len(trial.calls):
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            for tensor in own:
                places.setdefault(id(tensor), order[trial.calls[start].unit])
    return places


def layers_of(
    trial: Trial, tensors: Mapping[str, torch.Tensor], chain: Chain, mesh: Mesh, axis: str
) -> list[dict[str, Any]]:
    """By place in the chain, times in ns and bytes of a device (``csrc/passes/pipeline``)."""
    layers: list[dict[str, Any]] = [
        dict.fromkeys(("forward_ns", "backward_ns", "activation_bytes", "state_bytes"), 0)
        for _ in chain.names
    ]
    for call in trial.calls:
        layer = layers[chain.of_unit[call.unit]]
        for what in ("forward_ns", "backward_ns", "activation_bytes"):
            layer[what] += getattr(call, what)
    for name, tensor in tensors.items():
        copies = COPIES if tensor.requires_grad else 1
        layers[chain.of_tensor[name]]["state_bytes"] += copies * _C.local_bytes(tensor)
    sent = _sent_behind(trial.calls, chain, {_C.memory_id(t) for t in tensors.values()})
    for layer, count in zip(layers, sent, strict=True):
        layer["send_ns"] = _C.both_ways_ns(mesh._handle, axis, count)
    return layers


def _sent_behind(calls: list[Call], chain: Chain, kept: set[int]) -> list[int]:
    """By place, the bytes that later units read of what units up to there have made.

    What is made between two units counts as made behind the first of them, if it is no integer
    or truth: masks and positions are made where they are read.
    """
    order = chain.of_unit
    made = {id(t): order[call.unit] for call in reversed(calls) for t in call.outputs}
    sent = [0] * len(chain.names)
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
