# SPDX-License-Identifier: Apache-2.0
"""Composite ops whose normalised, indexed or reduced dim is cut: right, with small traffic."""

import pytest
import torch
import torch.nn.functional as F
from composites import compare, least_work, mesh_of, received, run

EIGHT = 8  # bytes of a float64


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def integers(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


# --- cross entropy --------------------------------------------------------------------------------

ROWS, CLASSES = 48, 24


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
    assert {c.kind for c in report.collectives} == {"all_reduce"}
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
    assert {c.kind for c in report.collectives} == {"all_reduce"}
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
    assert {c.kind for c in report.collectives} == {"all_reduce"}
    assert report.wire_bytes <= 3 * row + 4 * 2 * EIGHT


@pytest.mark.parametrize("devices", [2, 3])
def test_cross_entropy_of_pictures_with_cut_classes(devices):
    report = compare(
        F.cross_entropy,
        [numbers(2, 6, 3, 4), integers(6, 2, 3, 4)],
        mesh_of(devices),
        [(None, "x", None, None), None],
    )
    assert {c.kind for c in report.collectives} == {"all_reduce"}


def test_cross_entropy_with_class_probabilities():
    report = compare(
        lambda x, p: F.cross_entropy(x, p.softmax(1)),
        [numbers(ROWS, CLASSES), numbers(ROWS, CLASSES, seed=1)],
        mesh_of(4),
        [(None, "x"), (None, "x")],
    )
    assert {c.kind for c in report.collectives} == {"all_reduce"}


def test_a_class_out_of_range_is_an_index_error():
    target = labels()
    target[0], target[1] = 24, 0
    data, specs = [numbers(ROWS, CLASSES), target], [(None, "x"), None]
    with least_work(), pytest.raises(IndexError, match="nll_loss got indices from 0 to 24"):
        run(F.cross_entropy, data, "spmdx", mesh_of(2), specs)


# --- embedding ------------------------------------------------------------------------------------


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


# --- attention ------------------------------------------------------------------------------------

B, H, S, W = 2, 4, 12, 4  # batch, heads, sequence, width


def attend(causal=False, grouped=False, scale=None):
    return lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=grouped, scale=scale
    )


def qkv(queries=S, keys=S, heads=H, key_heads=H, width=W):
    return [
        numbers(B, heads, queries, width),
        numbers(B, key_heads, keys, width, seed=1),
        numbers(B, key_heads, keys, width, seed=2),
    ]


HEADS = (None, "x", None, None)
SEQUENCE = (None, None, "x", None)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_cut_heads_moves_nothing(devices, causal):
    report = compare(attend(causal), qkv(heads=8, key_heads=8), mesh_of(devices), [HEADS] * 3)
    assert report.wire_bytes == 0


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_grouped_key_heads_cut_moves_nothing(devices, causal):
    report = compare(
        attend(causal, grouped=True), qkv(heads=8, key_heads=4), mesh_of(devices), [HEADS] * 3
    )
    assert report.wire_bytes == 0


@pytest.mark.parametrize(("heads", "key_heads"), [(8, 2), (8, 1), (6, 3)])
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_attention_with_fewer_key_heads_than_devices(devices, heads, key_heads):
    report = compare(
        attend(True, grouped=True),
        qkv(heads=heads, key_heads=key_heads),
        mesh_of(devices),
        [HEADS, None, None],
    )
    if heads % devices == 0 and (key_heads % devices == 0 or devices % key_heads == 0):
        # Queries stay; gradients of keys are summed by those who share a head.
        gradients = 2 * B * key_heads * S * W * EIGHT
        assert report.wire_bytes <= 2 * gradients * (devices - 1) // devices


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 2), (8, 2), (6, 3), (6, 2)])
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_attention_with_key_heads_cut_over_more_devices_than_there_are(devices, heads, key_heads):
    inputs = qkv(heads=heads, key_heads=key_heads)
    for causal in (False, True):
        compare(attend(causal, grouped=True), inputs, mesh_of(devices), [HEADS] * 3)


def test_expanded_key_heads():
    def expanded(q, k, v):
        k, v = (t[:, :, None].expand(B, 2, 4, S, W).reshape(B, 8, S, W) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    report = compare(expanded, qkv(heads=8, key_heads=2), mesh_of(2), [HEADS] * 3)
    assert report.wire_bytes == 0


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [12, 7])
def test_attention_with_cut_queries(devices, causal, size):
    report = compare(
        attend(causal), qkv(queries=size, keys=size), mesh_of(devices), [SEQUENCE, None, None]
    )
    gradients = 2 * B * H * size * W * EIGHT  # of keys and values: sums over the queries
    assert report.wire_bytes <= 2 * gradients * (devices - 1) // devices


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [12, 7])
def test_attention_with_cut_keys(devices, causal, size):
    report = compare(
        attend(causal), qkv(queries=4, keys=size), mesh_of(devices), [None, SEQUENCE, SEQUENCE]
    )
    if size == 12 and devices == 2:
        kinds = {c.kind for c in report.collectives}
        assert kinds <= {"all_reduce", "reduce_scatter", "all_gather"}


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_a_cut_sequence(devices, causal):
    compare(attend(causal), qkv(heads=3, key_heads=3), mesh_of(devices), [SEQUENCE] * 3)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_queries_and_keys_cut_by_different_axes(causal):
    other = (None, None, "y", None)
    compare(attend(causal), qkv(), mesh_of("4x2"), [SEQUENCE, other, other])


@pytest.mark.parametrize("shape", [(S, S), (1, S), (B, 1, S, S), (B, H, S, S), (1, H, 1, S)])
@pytest.mark.parametrize("spec", ["query", "key", "heads"])
def test_attention_with_a_mask(shape, spec):
    mask = integers(2, *shape).bool()
    mask[..., 0, :] = False  # a row that sees nothing
    mask[..., 0] |= torch.arange(shape[-2]) > 0

    def masked(q, k, v, m):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)

    specs = {
        "query": [SEQUENCE, None, None],
        "key": [None, SEQUENCE, SEQUENCE],
        "heads": [HEADS] * 3,
    }[spec]
    compare(masked, [*qkv(), mask], mesh_of(3), [*specs, None])


def test_attention_with_a_scale():
    compare(attend(True, scale=0.3), qkv(), mesh_of(2), [None, SEQUENCE, SEQUENCE])


# --- positions, scans, norms ----------------------------------------------------------------------

LAST = [(None, "x")]


def with_ties(*shape):
    return integers(4, *shape).double()


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [24, 7])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_lowest_position_of_an_extremum(devices, size, name):
    x = with_ties(6, size)
    x[2, size // 2] = x[2, -1] = float("nan")
    for arguments in [(-1,), (), (-1, True)]:
        report = compare(
            lambda t, a=arguments: getattr(t.detach(), name)(*a), [x], mesh_of(devices), LAST
        )
        assert report.wire_bytes <= 2 * (2 * 6 * EIGHT * (devices - 1) // devices)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [24, 7])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremum_of_a_cut_dim_with_gradient(devices, size, name):
    report = compare(lambda t: getattr(t, name)(-1), [with_ties(6, size)], mesh_of(devices), LAST)
    assert {c.kind for c in report.collectives} <= {"all_reduce"}
    assert report.wire_bytes <= 2 * (2 * 6 * EIGHT * (devices - 1) // devices)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [48, 7])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_a_cut_dim_moves_candidates(devices, size, largest):
    x = torch.stack(
        [torch.randperm(size, generator=torch.Generator().manual_seed(i)) for i in range(6)]
    )
    report = compare(lambda t: t.topk(3, -1, largest=largest), [x.double()], mesh_of(devices), LAST)
    if size == 48:
        candidates = 2 * 6 * 3 * devices * EIGHT  # values and positions
        assert report.wire_bytes <= candidates * (devices - 1) // devices


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("size", [48, 7])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans_of_a_cut_dim_move_totals(devices, size, name):
    report = compare(
        lambda t: getattr(t, name)(-1), [numbers(6, size)], mesh_of(devices), LAST, relative=1e-8
    )
    if size == 48 and name == "cumsum":
        totals = 6 * devices * EIGHT * (devices - 1) // devices
        assert received(report, "all_gather") <= totals


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize(
    "spec", [(None, "x", None, None), (None, None, "x", None), ("x", None, None, None)]
)
@pytest.mark.parametrize(("channels", "groups"), [(8, 4), (8, 8), (6, 2), (6, 1)])
def test_group_norm(devices, spec, channels, groups):
    report = compare(
        lambda x, w, b: F.group_norm(x, groups, w, b),
        [numbers(4, channels, 6, 3), numbers(channels, seed=1), numbers(channels, seed=2)],
        mesh_of(devices),
        [spec, None, None],
    )
    if channels % devices == 0 or not spec[1]:  # no group lies on more devices than it must
        assert "all_to_all" not in {c.kind for c in report.collectives}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("width", [24, 7])
def test_rms_norm_and_layer_norm_over_a_cut_dim(devices, width):
    for norm in (F.rms_norm, F.layer_norm):
        report = compare(
            lambda x, w, norm=norm: norm(x, (width,), w),
            [numbers(10, width), numbers(width, seed=1)],
            mesh_of(devices),
            [(None, "x"), ("x",)],
        )
        assert {c.kind for c in report.collectives} == {"all_reduce"}
        rows = 4 if norm is F.layer_norm else 2
        assert report.wire_bytes <= rows * (2 * 10 * EIGHT * (devices - 1) // devices)


# --- reading and writing at indices ---------------------------------------------------------------


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
