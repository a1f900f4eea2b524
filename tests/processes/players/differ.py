# SPDX-License-Identifier: Apache-2.0
"""Steps in which process 1 does something else than the others, in one of many ways.

    differ.py KIND

Prints the error, and how many bytes had gone over the wire when it was raised.
"""

import sys

import spmdx
import torch

KIND = sys.argv[1]
OTHER = spmdx.runtime.process_index() == 1
COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))
BACK = spmdx.Mesh(reversed(range(COUNT)), (COUNT,), ("data",))


def total(x: torch.Tensor, mesh: spmdx.Mesh, spec: tuple) -> torch.Tensor:
    x = spmdx.mark_sharding(x.to("spmdx"), mesh, spec)
    return (x * x).sum()


def columns(x: torch.Tensor, k: int) -> torch.Tensor:
    return spmdx.mark_sharding(x.to("spmdx"), MESH, ("data", None))[:, k : k + 2].sum()


def step(kind: str) -> torch.Tensor:
    """Something that ends in a sum over all devices."""
    x = torch.arange(8.0 * COUNT).reshape(COUNT, 8)
    if kind == "offset":
        return columns(x, 4 if OTHER else 2)
    if not OTHER or kind == "same":
        return total(x, MESH, ("data", None))
    if kind == "op":
        return (spmdx.mark_sharding(x.to("spmdx"), MESH, ("data", None)) + 1).sum()
    if kind == "shape":
        return total(x[:, :6].clone(), MESH, ("data", None))
    if kind == "dtype":
        return total(x.double(), MESH, ("data", None))
    if kind == "spec":
        return total(x, MESH, (None, "data"))
    if kind == "mesh":
        return total(x, BACK, ("data", None))
    if kind == "values":
        return total(x + 1, MESH, ("data", None))
    if kind == "alive":
        KEPT.append(x.to("spmdx"))
        return total(KEPT[-1], MESH, ("data", None))
    raise ValueError(kind)


KEPT: list[torch.Tensor] = []


def other_step() -> torch.Tensor:
    x = spmdx.mark_sharding(torch.ones(COUNT, 3).to("spmdx"), MESH, ("data", None))
    return x.exp().sum()


def run() -> None:
    for _ in range(2):
        step("same").item()
    if KIND == "offset":  # the plan for one offset serves all
        columns(torch.arange(8.0 * COUNT).reshape(COUNT, 8), 1).item()
    spmdx.sync(wait=True)
    before.append(spmdx.debug.counters()["wire_bytes"])
    if KIND == "order":
        parts = [lambda: step("same"), other_step]
        for part in reversed(parts) if OTHER else parts:
            part().item()
    elif KIND == "extra":
        if OTHER:
            other_step().item()
        step("same").item()
    elif KIND == "missing":
        if not OTHER:
            other_step().item()
        step("same").item()
    elif KIND == "last":  # one more step at the end
        if OTHER:
            step("same").item()
    else:
        step(KIND).item()


before: list[int] = []
try:
    run()
    print("all is well")
except spmdx.CommError as error:
    moved = spmdx.debug.counters()["wire_bytes"] - before[0]
    print(f"{moved} bytes moved: {error}")
