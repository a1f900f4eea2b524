# SPDX-License-Identifier: Apache-2.0
"""What tests of manual regions share: meshes, numbers, and a check against the CPU."""

import spmdx
import torch

SIZES = [2, 3, 4, 8]


def line_of(size):
    return spmdx.Mesh(range(size), (size,), ("i",))


def grid(rows, columns):
    return spmdx.Mesh(range(rows * columns), (rows, columns), ("i", "j"))


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def device(tensor):
    return tensor.detach().to("spmdx").requires_grad_(tensor.requires_grad)


def kinds(report):
    return sorted((c.kind, c.bytes) for c in report.collectives)


def check(run, reference, *tensors):
    """Results and gradients of ``run`` on the device equal those of ``reference`` on the CPU.

    Gives the reports of the forward pass and of the backward pass.
    """
    host = [t.clone().requires_grad_(t.dtype.is_floating_point) for t in tensors]
    ours = [device(t) for t in host]
    expected, result = reference(*host), run(*ours)
    weight = numbers(*expected.shape, seed=9)
    forward = spmdx.explain(result)
    torch.testing.assert_close(result.cpu(), expected.detach(), atol=1e-5, rtol=1e-5)
    (expected * weight).sum().backward()
    (result * weight.to("spmdx")).sum().backward()
    spmdx.mark_step()
    backward = spmdx.explain()
    for t, h in zip(ours, host, strict=True):
        torch.testing.assert_close(t.grad.cpu(), h.grad, atol=1e-5, rtol=1e-5)
    return forward, backward


def ring(size):
    return [(i, (i + 1) % size) for i in range(size)]
