# SPDX-License-Identifier: Apache-2.0
"""Cross entropy whose classes are cut: right, with small traffic."""

import pytest
import torch
import torch.nn.functional as F
from composites import EIGHT, REDUCED, compare, integers, least_work, mesh_of, numbers, run
from hardware import WRONG_INDICES

ROWS, CLASSES = 48, 240


def labels(ignored=0):
    target = integers(CLASSES, ROWS)
    target[:ignored] = -100
    return target


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_with_cut_classes_moves_rows_only(devices, reduction):
    report = compare(
        lambda x, t: F.cross_entropy(x, t, reduction=reduction),
        [numbers(ROWS, CLASSES), labels(5)],
        mesh_of(devices),
        [(None, "x"), None],
    )
    assert {c.kind for c in report.collectives} <= REDUCED
    row = 2 * ROWS * EIGHT * (devices - 1) // devices
    scalars = 2 * 2 * EIGHT * (devices - 1) // devices
    assert report.wire_bytes <= (3 * row if reduction == "none" else 2 * row + scalars)


@pytest.mark.parametrize("classes", [1, 5, 17])
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_cross_entropy_with_unevenly_cut_classes(devices, classes):
    compare(
        F.cross_entropy,
        [numbers(6, classes), integers(classes, 6)],
        mesh_of(devices),
        [(None, "x"), None],
    )


def test_cross_entropy_with_a_cut_batch_moves_two_scalars():
    report = compare(
        F.cross_entropy,
        [numbers(ROWS, CLASSES).float(), labels(5)],
        mesh_of(2),
        [("x", None), ("x",)],
        1e-5,
    )
    assert {c.kind for c in report.collectives} <= REDUCED
    assert report.wire_bytes == 8


def test_cross_entropy_with_batch_and_classes_cut():
    report = compare(
        F.cross_entropy,
        [numbers(ROWS, CLASSES), labels(5)],
        mesh_of("4x2"),
        [("x", "y"), ("x",)],
    )
    assert report.wire_bytes <= 2 * (ROWS // 4) * EIGHT + 2 * 2 * EIGHT


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("devices", [2, 3])
def test_cross_entropy_with_weights_ignored_labels_and_smoothing(devices, reduction, smoothing):
    compare(
        lambda x, t, w: F.cross_entropy(
            x, t, w.detach(), reduction=reduction, label_smoothing=smoothing
        ),
        [numbers(7, 5), integers(5, 7).masked_fill(torch.arange(7) == 3, -100), numbers(5).abs()],
        mesh_of(devices),
        [(None, "x"), None, None],
    )


def test_label_smoothing_adds_one_row_forward_and_none_backward():
    report = compare(
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        [numbers(ROWS, CLASSES), labels(5)],
        mesh_of(2),
        [(None, "x"), None],
    )
    row = 2 * ROWS * EIGHT // 2
    assert {c.kind for c in report.collectives} <= REDUCED
    assert report.wire_bytes <= 3 * row + 4 * 2 * EIGHT


@pytest.mark.parametrize("devices", [2, 3])
def test_cross_entropy_of_pictures_with_cut_classes(devices):
    report = compare(
        F.cross_entropy,
        [numbers(2, 6, 3, 4), integers(6, 2, 3, 4)],
        mesh_of(devices),
        [(None, "x", None, None), None],
    )
    assert {c.kind for c in report.collectives} <= REDUCED


def test_cross_entropy_with_class_probabilities():
    report = compare(
        lambda x, p: F.cross_entropy(x, p.softmax(1)),
        [numbers(ROWS, CLASSES), numbers(ROWS, CLASSES, seed=1)],
        mesh_of(4),
        [(None, "x"), (None, "x")],
    )
    assert {c.kind for c in report.collectives} <= REDUCED


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_a_class_out_of_range_is_an_index_error():
    target = labels()
    target[0], target[1] = CLASSES, 0
    data, specs = [numbers(ROWS, CLASSES), target], [(None, "x"), None]
    with least_work(), pytest.raises(IndexError, match=f"nll_loss got indices from 0 to {CLASSES}"):
        run(F.cross_entropy, data, "spmdx", mesh_of(2), specs)
