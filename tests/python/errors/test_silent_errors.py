# SPDX-License-Identifier: Apache-2.0
"""Wrong numbers that a partitioner makes without saying so, each a named test that passes here.

Results and all gradients are those of plain PyTorch in double precision; results are weighted at
random before they flow back, so that errors of two devices cannot make up for each other.
"""

import pytest
import torch
import torch.nn.functional as F
from cuts import BATCH, LAST, SIZES, agree, chances, indices, numbers

ROWS = pytest.mark.parametrize("rows", [24, 13], ids=["even", "uneven"])
DEVICES = pytest.mark.parametrize("devices", SIZES)
REDUCTIONS = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])


def everywhere(test):
    """On every mesh, with rows that the devices divide and with rows that they do not."""
    return DEVICES(ROWS(test))


PAIRS = [(BATCH, BATCH), (BATCH, None), (None, BATCH), (LAST, LAST), (BATCH, LAST)]


@everywhere
@REDUCTIONS
def test_mse_loss(devices, rows, reduction):
    """The backward kernel divides by the count of its shard: gradients too large by the mesh."""
    loss = lambda x, y: F.mse_loss(x, y, reduction=reduction)  # noqa: E731
    agree(loss, [numbers(rows, 5), numbers(rows, 5, seed=1)], devices, PAIRS)


@everywhere
@REDUCTIONS
def test_huber_loss(devices, rows, reduction):
    """The mean of a shard's count, in the backward, as with mse_loss."""
    loss = lambda x, y: F.huber_loss(x, y, reduction=reduction, delta=0.7)  # noqa: E731
    agree(loss, [numbers(rows, 5), numbers(rows, 5, seed=1)], devices, PAIRS)


@everywhere
@REDUCTIONS
def test_smooth_l1_loss(devices, rows, reduction):
    """The mean of a shard's count, in the backward, as with mse_loss."""
    loss = lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.7)  # noqa: E731
    agree(loss, [numbers(rows, 5), numbers(rows, 5, seed=1)], devices, PAIRS)


@everywhere
@REDUCTIONS
def test_l1_loss(devices, rows, reduction):
    """A mean of means of shards: with uneven shards the smaller ones count too much."""
    loss = lambda x, y: F.l1_loss(x, y, reduction=reduction)  # noqa: E731
    agree(loss, [numbers(rows, 5), numbers(rows, 5, seed=1)], devices, PAIRS)


@everywhere
@REDUCTIONS
def test_binary_cross_entropy(devices, rows, reduction):
    """The backward kernel divides by the count of its shard, with and without weights."""
    x, y, w = chances(rows, 5), chances(rows, 5, seed=1), chances(rows, 5, seed=2)
    plain = lambda x, y: F.binary_cross_entropy(x, y.detach(), reduction=reduction)  # noqa: E731
    agree(plain, [x, y], devices, PAIRS)
    agree(
        lambda x, y, w: F.binary_cross_entropy(x, y.detach(), w.detach(), reduction=reduction),
        [x, y, w],
        devices,
        [(BATCH, BATCH, BATCH), (BATCH, BATCH, None), (LAST, None, LAST)],
    )


@everywhere
@REDUCTIONS
def test_binary_cross_entropy_with_logits(devices, rows, reduction):
    """A weight of positives that is taken for one a row, or a mean over a shard."""
    agree(
        lambda x, y, p: F.binary_cross_entropy_with_logits(
            x, y.detach(), pos_weight=p.detach(), reduction=reduction
        ),
        [numbers(rows, 5), chances(rows, 5, seed=1), chances(5, seed=2)],
        devices,
        [(BATCH, BATCH, None), (BATCH, None, None), (LAST, LAST, ("x",)), (BATCH, LAST, ("x",))],
    )


@everywhere
@pytest.mark.parametrize("reduction", ["batchmean", "sum", "none"])
def test_kl_div(devices, rows, reduction):
    """batchmean divides by the number of rows, which is not that of a shard."""
    loss = lambda x, y: F.kl_div(x.log_softmax(1), y, reduction=reduction)  # noqa: E731
    agree(loss, [numbers(rows, 5), chances(rows, 5, seed=1)], devices, PAIRS)


@everywhere
@REDUCTIONS
def test_cosine_embedding_loss(devices, rows, reduction):
    """Its norms and products are over the cut dim: a root of a part is no part of a root."""
    agree(
        lambda x, y, t: F.cosine_embedding_loss(x, y, t, margin=0.2, reduction=reduction),
        [numbers(rows, 5), numbers(rows, 5, seed=1), indices(2, rows) * 2 - 1],
        devices,
        [(BATCH, BATCH, ("x",)), (BATCH, BATCH, None), (LAST, LAST, None), (LAST, BATCH, ("x",))],
    )


@everywhere
@REDUCTIONS
@pytest.mark.parametrize("ignored", [-100, 2])
def test_weighted_nll_loss(devices, rows, reduction, ignored):
    """A mean over the weight of all rows that count, which no device knows by itself."""
    agree(
        lambda x, t, w: F.nll_loss(x, t, w.detach(), reduction=reduction, ignore_index=ignored),
        [numbers(rows, 5), indices(5, rows), chances(5, seed=2)],
        devices,
        [(BATCH, ("x",), None), (BATCH, ("x",), ("x",)), (BATCH, None, ("x",)), (LAST, None, None)],
    )


@everywhere
def test_nll_loss_where_a_device_has_only_ignored_rows(devices, rows):
    """The mean of a shard without a row that counts is 0 / 0, and spoils the sum over devices."""
    target = indices(5, rows)
    target[: -(-rows // devices)] = 3
    agree(
        lambda x, t: F.nll_loss(x, t, ignore_index=3),
        [numbers(rows, 5), target],
        devices,
        [(BATCH, ("x",)), (BATCH, None), (LAST, None)],
    )


@everywhere
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_with_cut_classes(devices, rows, smoothing):
    """A row's class lies on one device: all others look it up beyond the end of their part."""
    agree(
        lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=smoothing),
        [numbers(rows, 13), indices(13, rows), chances(13, seed=2)],
        devices,
        [(LAST, None, None), (LAST, ("x",), ("x",)), (LAST, None, ("x",))],
    )


@everywhere
def test_gather_along_a_cut_dim(devices, rows):
    """An index is into the whole dim: looked up in a part it finds another element, or none."""
    agree(
        lambda x, i: x.gather(0, i),
        [numbers(rows, 3), indices(rows, 7, 3)],
        devices,
        [(BATCH, None), (BATCH, BATCH), (None, BATCH)],
    )


@everywhere
def test_gather_beside_a_cut_dim(devices, rows):
    """The index has fewer rows than the tensor: parts of the two that are cut alike do not meet."""
    agree(
        lambda x, i: x.gather(1, i),
        [numbers(rows, 6), indices(6, rows - 2, 4)],
        devices,
        [(BATCH, BATCH), (BATCH, None), (None, BATCH), (LAST, BATCH), (LAST, LAST)],
    )


@everywhere
@pytest.mark.parametrize("dim", [0, 1])
def test_a_view_of_uneven_rows_then_gathered(devices, rows, dim):
    """Row r of a flat part is not row r of the flat whole, once a part before it is shorter."""
    agree(
        lambda x, i: x.view(-1).gather(0, i),
        [numbers(rows, 5), indices(rows * 5, 17)],
        devices,
        [(spec, index) for spec in (BATCH, LAST) for index in (("x",), None)],
    )
    agree(
        lambda x: x.view(-1, 5).flatten(0, 1).view(rows, 5).sum(dim),
        [numbers(rows, 5)],
        devices,
        [(BATCH,), (LAST,)],
    )


@everywhere
def test_a_flattened_view_reduced(devices, rows):
    """A mean, a spread and an extremum of a flat tensor whose parts are of several lengths."""
    for reduce in (torch.mean, torch.var, torch.amax, torch.logsumexp, torch.linalg.vector_norm):
        dims = (0,) if reduce is torch.logsumexp else ()
        agree(
            lambda x, reduce=reduce, dims=dims: reduce(x.view(-1), *dims),
            [numbers(rows, 5)],
            devices,
            [(BATCH,), (LAST,)],
        )


@everywhere
def test_an_extremum_is_found_in_the_flat_whole(devices, rows):
    """A position within a part is no position in the whole."""
    agree(
        lambda x: x.view(-1).gather(0, x.detach().argmax().view(1)),
        [numbers(rows, 5)],
        devices,
        [(BATCH,), (LAST,)],
    )


@everywhere
def test_batch_norm_over_a_cut_batch(devices, rows):
    """Statistics of a shard instead of those of the batch, in results and in all gradients."""
    agree(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        [numbers(rows, 6, 2), numbers(6, seed=1), numbers(6, seed=2)],
        devices,
        [(("x", None, None), None, None), ((None, None, "x"), None, None)],
    )


@everywhere
def test_an_embedding_whose_gradient_counts_frequencies(devices, rows):
    """How often a row occurs is counted over the whole batch."""
    agree(
        lambda w, i: F.embedding(i, w, padding_idx=1, scale_grad_by_freq=True),
        [numbers(9, 4), indices(9, rows)],
        devices,
        [(None, ("x",)), (BATCH, None), (LAST, ("x",)), (BATCH, ("x",))],
    )


@everywhere
def test_a_bias_after_a_cut_contraction(devices, rows):
    """The bias is added by every device that holds a summand."""
    agree(
        lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=2.0),
        [numbers(4, rows), numbers(rows, 5, seed=1), numbers(5, seed=2)],
        devices,
        [(LAST, BATCH, None), (LAST, None, ("x",)), (None, BATCH, None)],
    )
