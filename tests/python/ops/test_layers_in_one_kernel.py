# SPDX-License-Identifier: Apache-2.0
"""Attention and encoder layers that PyTorch computes in one kernel, equal the CPU."""

import copy

import pytest
import spmdx
import torch
from torch import nn

BATCH, LENGTH, WIDTH, HEADS = 6, 7, 16, 4
MESHES = {2: ((2,), "a"), 3: ((3,), "a"), 4: ((2, 2), "ab"), 8: ((4, 2), "ab")}
SPECS = {"bare": None, "batch": (0,), "length": (None, 0), "width": (None, None, 0), "two": (0, 1)}
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH).double()
PADDED = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
PADDED[1:, 5:] = PADDED[3, 2:] = True
BY_HEAD = torch.rand(BATCH * HEADS, LENGTH, LENGTH, dtype=torch.float64)
MASKS = {
    "no mask": {},
    "causal": {"attn_mask": CAUSAL},
    "by head": {"attn_mask": BY_HEAD},
    "padding": {"key_padding_mask": PADDED},
    "both": {"attn_mask": CAUSAL, "key_padding_mask": PADDED.double() * -1e9},
}


def attention(masks, weights=False):
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def run(module, x, masks):
        out = module(x, x, x, need_weights=weights, **masks)
        return [t for t in out if t is not None]

    return module, run, masks


def layer(masks):
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, 0.0, batch_first=True)
    names = {"attn_mask": "src_mask", "key_padding_mask": "src_key_padding_mask"}
    masks = {names[name]: mask for name, mask in masks.items()}
    return module, lambda module, x, masks: [module(x, **masks)], masks


CASES = {f"attention, {name}": lambda m=m: attention(m) for name, m in MASKS.items()}
CASES |= {f"weights, {name}": lambda m=m: attention(m, True) for name, m in MASKS.items()}
CASES |= {f"layer, {name}": lambda m=m: layer(m) for name, m in MASKS.items() if name != "by head"}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_evaluation_equals_the_cpu(case, devices, spec):
    shape, names = MESHES[devices]
    if spec == (0, 1) and len(shape) == 1:
        pytest.skip("one axis")
    torch.manual_seed(1)
    spmdx.runtime.set_device_count(8)
    module, run, masks = case()
    module = module.double().eval()
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64)
    ours = x.to("spmdx")
    if spec:
        spec = (*spec, *[None] * (3 - len(spec)))
        spmdx.mark_sharding(ours, spmdx.Mesh(range(devices), shape, tuple(names)), spec)
    with torch.no_grad():
        want = run(module, x, masks)
        there = {name: mask.to("spmdx") for name, mask in masks.items()}
        got = run(copy.deepcopy(module).to("spmdx"), ours, there)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w, rtol=1e-9, atol=1e-9)
