# SPDX-License-Identifier: Apache-2.0
"""A loss whose scores are made by words is computed by words, seen through views or not."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)


def loss_of(x, table, words, mesh=None):
    """The loss and both gradients: rows of x and words of the table are cut."""
    if mesh:
        x, table, words = (t.to("spmdx") for t in (x, table, words))
        spmdx.mark_sharding(x, mesh, ("x", None, None))
        spmdx.mark_sharding(table, mesh, ("x", None))
    else:
        x, table = x.clone(), table.clone()
    x.requires_grad_(), table.requires_grad_()
    loss = F.cross_entropy(F.linear(x, table).flatten(0, 1), words.flatten())
    return [loss, *torch.autograd.grad(loss, (x, table))]


def tensors(batch, length, width, words, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, length, width, dtype=dtype, generator=generator)
    table = torch.randn(words, width, dtype=dtype, generator=generator)
    return x, table, torch.randint(words, (batch, length), generator=generator)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("words", [96, 101])
def test_loss_and_gradients_are_those_of_one_device(devices, words):
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
    given = tensors(8, 3, 16, words, torch.float64)
    for got, want in zip(loss_of(*given, mesh), loss_of(*given), strict=True):
        assert_equal(got.detach().cpu(), want.detach(), f"{words} words on {devices}")


def test_scores_are_not_exchanged():
    mesh = spmdx.Mesh(range(8), (8,), ("x",))
    batch, length, width, words = 16, 128, 512, 16384
    given = tensors(batch, length, width, words, torch.float32)
    with spmdx.plan_only():
        kept = loss_of(*given, mesh)
        spmdx.mark_step()
        report = spmdx.explain()
    assert len(kept) == 3
    assert report.wire_bytes < batch * length * words * 4 / 8 * 7 / 8  # one exchange of scores
