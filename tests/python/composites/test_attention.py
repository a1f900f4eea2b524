# SPDX-License-Identifier: Apache-2.0
"""Attention whose heads, queries or keys are cut: right, with small traffic."""

import pytest
import torch
import torch.nn.functional as F
from composites import EIGHT, compare, integers, mesh_of, numbers

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
