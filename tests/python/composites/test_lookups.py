# SPDX-License-Identifier: Apache-2.0
"""Embeddings, and reading and writing at indices, of a cut dim: right, with small traffic."""

import pytest
import torch
import torch.nn.functional as F
from composites import EIGHT, compare, integers, mesh_of, numbers, received


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("padding", [None, 3])
def test_embedding_with_a_cut_vocabulary(devices, padding):
    report = compare(
        lambda w, i: F.embedding(i, w, padding_idx=padding),
        [numbers(13, 4), integers(13, 6, 5)],
        mesh_of(devices),
        [("x", None), None],
    )
    # Forward the sum of what each device found; backward nothing: each adds to the rows it has.
    assert report.wire_bytes <= 2 * 6 * 5 * 4 * EIGHT * (devices - 1) // devices + 8


def test_embedding_gradient_of_a_cut_vocabulary_is_local():
    def gradient(w, i, upstream):
        return torch.ops.aten.embedding_dense_backward(upstream.detach(), i, 13, -1, False)

    report = compare(
        gradient,
        [numbers(13, 4), integers(13, 6, 5), numbers(6, 5, 4)],
        mesh_of(4),
        [("x", None), None, None],
    )
    assert report.wire_bytes == 0 or {c.kind for c in report.collectives} == {"all_gather"}


@pytest.mark.parametrize("devices", [2, 3])
def test_embedding_scaled_by_frequency(devices):
    compare(
        lambda w, i: F.embedding(i, w, scale_grad_by_freq=True),
        [numbers(7, 4), integers(7, 6, 5)],
        mesh_of(devices),
        [("x", None), None],
    )


def test_a_large_table_is_not_reduced_for_a_small_batch():
    rows, width, batch = 512, 8, 16
    report = compare(
        lambda w, i: F.embedding(i, w),
        [numbers(rows, width), integers(rows, batch)],
        mesh_of(4),
        [None, ("x",)],
    )
    assert received(report, "all_reduce") == 0
    assert report.wire_bytes <= batch * width * EIGHT + batch * 8


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [24, 7])
def test_reading_at_indices_of_a_cut_dim(devices, size):
    index, line = integers(size, 5, 4), integers(size, 9, seed=1)

    def read(x, i, j):
        return (
            x.gather(0, i),
            x.index_select(0, j),
            x[j - size],
            x[i],
            x.T[:, j],
            x.take_along_dim(i, 0),
        )

    report = compare(
        read, [numbers(size, 4), index, line], mesh_of(devices), [("x", None), None, None]
    )
    assert "all_to_all" not in {c.kind for c in report.collectives}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [24, 7])
def test_writing_at_indices_of_a_cut_dim_moves_nothing(devices, size):
    index, line = integers(size, 5, 4), torch.randperm(size)[:6]

    def write(x, i, j, source, rows):
        return (
            x.scatter(0, i, 2.0),
            x.scatter_add(0, i, source),
            x.scatter_reduce(0, i, source, "amax"),
            x.index_add(0, j, rows, alpha=0.5),
            x.index_copy(0, j, rows),
            x.index_put((j,), rows),
            x.index_put((j - size,), rows, accumulate=True),
        )

    data = [numbers(size, 4), index, line, numbers(5, 4, seed=1), numbers(6, 4, seed=2)]
    spec = [("x", None), None, None, None, None]
    compare(lambda *t: [o.detach() for o in write(*t)], data, mesh_of(devices), spec)
    report = compare(lambda *t: write(*t)[1], data, mesh_of(devices), spec)
    assert report.wire_bytes <= 2 * 5 * 4 * EIGHT
