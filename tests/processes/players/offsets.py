# SPDX-License-Identifier: Apache-2.0
"""Offsets that move from step to step, on devices of several processes: the CPU's numbers.

    offsets.py

Ends with "well", printed by every process, or fails.
"""

import spmdx
import torch

COUNT = spmdx.runtime.global_runtime_device_count()
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("x",))


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) % 7 - 3


def put(tensor: torch.Tensor, *spec: str | None) -> torch.Tensor:
    return spmdx.mark_sharding(tensor.clone().to("spmdx"), MESH, spec)


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    there = got.detach().cpu()
    assert torch.equal(there, expected.detach()), (there, expected)


def trained(data: torch.Tensor, weight: torch.Tensor, k: int) -> torch.Tensor:
    (data[k : k + 4] @ weight).square().sum().backward()
    gradient, weight.grad = weight.grad, None
    return gradient


def offsets_of_data(*spec: str | None) -> None:
    data, weight = numbers(41, 6), numbers(6, 3).requires_grad_()
    here, w = put(data, *spec), put(weight.detach(), None, None).requires_grad_()
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    for k in range(37):
        gradient = trained(here, w, k)
        spmdx.mark_step()
        same(gradient, trained(data, weight, k))
    assert spmdx.debug.counters()["plans_compiled"] == 1


def ring(*spec: str | None) -> None:
    plain = torch.zeros(11, 6)
    here = put(plain, *spec)
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    for i in range(30):
        for t in (here, plain):
            t[i % 11] = i + 2
            t[i % 9 : i % 9 + 2][:, i % 5] -= 1
        spmdx.mark_step()
        same(here, plain)
    assert spmdx.debug.counters()["plans_compiled"] <= 2


def long_reads() -> None:
    data = numbers(24 * COUNT, 3)
    here = put(data, "x", None)
    for k in (0, 5, 12, 5, COUNT, 0):
        got = here[k : k + 20] * 2
        spmdx.mark_step()
        same(got, data[k : k + 20] * 2)


for layout in (("x", None), (None, "x"), (None, None)):
    offsets_of_data(*layout)
    ring(*layout)
long_reads()
print("well", flush=True)
