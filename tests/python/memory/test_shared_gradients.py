# SPDX-License-Identifier: Apache-2.0
"""Autograd and shared memory: what it saves, and what gradients are views of."""

import pytest
import torch
from shared_memory import MESHES, on_device, same


def test_saved_tensors_may_be_written_where_autograd_keeps_copies():
    def act(x):
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            x = x.requires_grad_()
            h = x * 2
            y = h * h
            h.add_(1)
            (y.sum() + h.sum()).backward()
        return x.grad

    same(act, torch.ones(3))


def test_shards_that_are_loaded_are_a_write_to_graphs():
    x = on_device(torch.arange(8.0), 2).requires_grad_()
    loss = (x * x).sum()
    with torch.no_grad():
        x.load_local_shards_([torch.ones(4)] * 2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def written_in_a_hook(x):
    """The gradient is a view of what backward computed; a hook writes what it has detached."""
    p, seen = x.requires_grad_(), []

    def hook(leaf):
        leaf.grad.detach().mul_(2)
        whole = leaf.grad.new_ones(leaf.numel())
        whole.view(leaf.shape).detach().add_(3)
        row = leaf.grad.t()
        row.detach().add_(1)
        seen.append(whole)

    p.register_post_accumulate_grad_hook(hook)
    (p.reshape(-1) * 3).sum().backward()
    p.t().mul(2).sum().backward()
    return torch.cat([p.grad.flatten(), *seen])


def kept_by_a_hook(x):
    """Somebody else sees what the gradient is a view of, and writes to it."""
    p, kept = x.requires_grad_(), []

    def hook(gradient):
        base = gradient * 2
        kept.append(base)
        return base.view(-1).view(p.shape)

    p.register_hook(hook)
    (p * 3).sum().backward()
    kept[0].mul_(5)
    return p.grad


def dropped_in_a_hook(x):
    """As an optimizer in backward does; views of what Python never saw come after."""
    p, seen = x.requires_grad_(), []

    def hook(leaf):
        a = leaf.detach() + leaf.grad
        leaf.grad = None
        product = torch.einsum("ij,kj->ki", a, a)
        product.detach().zero_()
        row = torch.matmul(a[0], a.t())
        row.detach().mul_(2)
        seen.extend([product.reshape(-1), row])

    p.register_post_accumulate_grad_hook(hook)
    for _ in range(2):
        (p.reshape(-1) * 3).sum().backward()
    return torch.cat(seen)


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("rows", [4, 7])
@pytest.mark.parametrize("act", [written_in_a_hook, kept_by_a_hook, dropped_in_a_hook])
def test_gradients_share_memory_with_whom_they_do_in_eager(act, rows, devices):
    same(act, torch.arange(3.0 * rows).view(rows, 3), devices)
