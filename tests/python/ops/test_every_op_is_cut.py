# SPDX-License-Identifier: Apache-2.0
"""Ops that are rarely met are cut as well: no fallback, results and gradients of plain PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from cuts import BATCH, LAST, SIZES, agree, flags, indices, numbers

DEVICES = pytest.mark.parametrize("devices", SIZES)


def batch_norm_with_update(x, w, b):
    mean, var = torch.zeros(4, dtype=x.dtype, device=x.device), torch.ones_like(w).detach()
    out = torch.ops.aten._batch_norm_with_update(x, w, b, mean, var, 0.1, 1e-5)[0]
    return out, mean, var


CALLS = {
    "dist": (torch.dist, [numbers(13, 5), numbers(13, 5, seed=1)], [(BATCH, BATCH), (LAST, BATCH)]),
    "trace": (torch.trace, [numbers(13, 17)], [(BATCH,), (LAST,)]),
    "addbmm": (
        lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2),
        [numbers(5, 7), numbers(6, 5, 3), numbers(6, 3, 7, seed=1)],
        [(None, ("x", None, None), ("x", None, None)), (BATCH, (None, "x", None), None)],
    ),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.5), [numbers(13, 5)], [(BATCH,), (LAST,)]),
    "put": (
        lambda x, i, s: x.put(i, s, accumulate=True),
        [numbers(13, 5), indices(65, 9) - 20, numbers(9, seed=1)],
        [(BATCH, None, None), (LAST, ("x",), ("x",)), (BATCH, ("x",), None)],
    ),
    "take": (
        lambda x, i: x.take(i),
        [numbers(13, 5), indices(65, 9, 2) - 20],
        [(BATCH, None), (LAST, BATCH), (None, BATCH)],
    ),
    "masked_scatter": (
        lambda x, m, s: x.masked_scatter(m, s),
        [numbers(13, 5), flags(13, 5), numbers(70, seed=1)],
        [(BATCH, BATCH, None), (None, BATCH, ("x",)), (LAST, None, ("x",))],
    ),
    "masked_scatter of a row of flags": (
        lambda x, m, s: x.masked_scatter(m, s),
        [numbers(13, 5), flags(13, 1), numbers(70, seed=1)],
        [(BATCH, BATCH, None), (LAST, None, ("x",))],
    ),
    "unsafe_masked_index": (
        lambda x, m, i: torch.ops.aten._unsafe_masked_index(x, m, [i], 0.5),
        [numbers(13, 5), flags(7, 1), indices(13, 7)],
        [(BATCH, None, None), (BATCH, BATCH, ("x",)), (LAST, None, ("x",))],
    ),
    "diagonal_scatter": (
        lambda x, d: torch.diagonal_scatter(x, d, 0, 1, 2),
        [numbers(13, 4, 4), numbers(13, 4, seed=1)],
        [(("x", None, None), BATCH), ((None, "x", None), BATCH)],
    ),
    "bilinear": (
        F.bilinear,
        [numbers(13, 4), numbers(13, 5, seed=1), numbers(6, 4, 5, seed=2), numbers(6, seed=3)],
        [
            (BATCH, BATCH, None, None),
            (None, None, ("x", None, None), ("x",)),
            (LAST, BATCH, None, None),
        ],
    ),
    "pdist": (F.pdist, [numbers(9, 5)], [(BATCH,), (LAST,)]),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        [numbers(5, 3, 4, 4)],
        [(("x", None, None, None),), ((None, "x", None, None),)],
    ),
    "linalg.solve": (
        lambda a, b: torch.linalg.solve(a, b),
        [numbers(5, 3, 3), numbers(5, 3, 2, seed=1)],
        [(("x", None, None), ("x", None, None)), (("x", None, None), None)],
    ),
    "fft": (
        lambda x: torch.view_as_real(torch.fft.fft(x, dim=1)),
        [numbers(13, 8)],
        [(BATCH,), (LAST,)],
    ),
    "rfft and irfft": (
        lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=9),
        [numbers(13, 9)],
        [(BATCH,), (LAST,)],
    ),
    "batch_norm_with_update": (
        batch_norm_with_update,
        [numbers(13, 4, 3), numbers(4, seed=1), numbers(4, seed=2)],
        [(("x", None, None), None, None), ((None, None, "x"), None, None)],
    ),
    "block_diag": (
        torch.block_diag,
        [numbers(9, 4), numbers(3, 5)],
        [(BATCH, None), (LAST, BATCH)],
    ),
    "cartesian_prod": (torch.cartesian_prod, [numbers(9), numbers(5)], [(("x",), None)]),
    "combinations": (lambda x: torch.combinations(x, 2), [numbers(9)], [(("x",),)]),
    "histogramdd": (
        lambda x: torch.histogramdd(x.detach(), [3, 4], range=[-2.0, 2.0, -1.0, 1.0]).hist,
        [numbers(13, 2)],
        [(BATCH,)],
    ),
    "bits seen as another dtype": (
        lambda x: [
            x.detach().view(torch.int64),
            x.detach().view(torch.int32),
            x.detach().float().view(torch.int16),
        ],
        [numbers(13, 6)],
        [(BATCH,), (LAST,)],
    ),
    "hash_tensor": (
        lambda x: torch.hash_tensor(x.detach(), dim=1).view(torch.int64),
        [numbers(13, 5)],
        [(BATCH,), (LAST,)],
    ),
}


@DEVICES
@pytest.mark.parametrize("name", CALLS)
def test_it_is_cut_and_equal(name, devices):
    function, tensors, placements = CALLS[name]
    agree(function, tensors, devices, placements)


@DEVICES
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_margin_losses(reduction, devices):
    x, rows = numbers(13, 5), indices(5, 13)
    several = torch.where(flags(13, 5), indices(5, 13, 5), -1)
    weight = numbers(5, seed=3).abs()
    agree(
        lambda x, t, w: F.multi_margin_loss(x, t, weight=w.detach(), p=2, reduction=reduction),
        [x, rows, weight],
        devices,
        [(BATCH, ("x",), None), (BATCH, None, None), (LAST, ("x",), ("x",))],
    )
    agree(
        lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction),
        [x, several],
        devices,
        [(BATCH, BATCH), (BATCH, None), (LAST, BATCH)],
    )


@DEVICES
@pytest.mark.parametrize("padded", [True, False], ids=["a row each", "one after the other"])
def test_ctc_loss(padded, devices):
    """A device has the longest target of its own sequences, and takes them out of all."""
    lengths = [3, 1, 4, 2, 0, 5, 2, 3, 1]
    times = [9, 12, 11, 12, 10, 12, 8, 12, 7]
    targets = indices(6, 9, 5) + 1 if padded else indices(6, sum(lengths)) + 1

    def loss(x, t):
        return F.ctc_loss(x.log_softmax(2), t, times, lengths, reduction="none", zero_infinity=True)

    spec = (None, "x", None)
    marks = [BATCH, None] if padded else [("x",), None]
    agree(loss, [numbers(12, 9, 7), targets], devices, [(spec, mark) for mark in marks])


BAGS = {
    "rows of indices": (indices(11, 13, 4), None),
    "offsets": (indices(11, 30), torch.tensor([0, 3, 3, 10, 11, 25, 30])),
}


@DEVICES
@pytest.mark.parametrize("bags", BAGS)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag(mode, bags, devices):
    """A table of which every device has some rows: one sum of the bags, not of the table."""
    index, offsets = BAGS[bags]
    table = numbers(11, 6)

    def of(w, i, o=None):
        return F.embedding_bag(i, w, o, mode=mode, padding_idx=2)

    tensors = [table, index] + ([] if offsets is None else [offsets])
    rest = (None,) * (len(tensors) - 1)
    batch = (("x",) + (None,) * (index.dim() - 1),) + rest[1:]
    agree(of, tensors, devices, [(BATCH, *rest), (LAST, *rest), (None, *batch), (BATCH, *batch)])


@DEVICES
def test_embedding_bag_with_weights_of_samples(devices):
    agree(
        lambda w, i, s: F.embedding_bag(i, w, per_sample_weights=s, mode="sum"),
        [numbers(11, 6), indices(11, 13, 4), numbers(13, 4, seed=2)],
        devices,
        [(BATCH, None, None), (None, BATCH, BATCH), (LAST, BATCH, None)],
    )
