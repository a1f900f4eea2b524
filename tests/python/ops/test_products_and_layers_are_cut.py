# SPDX-License-Identifier: Apache-2.0
"""Grouped, scaled and quantized products, whole layers in one kernel, flags and complex numbers."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from cuts import BATCH, LAST, SIZES, agree, flags, indices, line, numbers, ran_whole
from hardware import ON_GPU

DEVICES = pytest.mark.parametrize("devices", SIZES)

ENDS = torch.tensor([3, 3, 9, 16], dtype=torch.int32)  # the second group is empty
STACK, EXPERTS = (None, None, "x"), ("x", None, None)
GROUPED = {
    "rows": (
        (16, 8),
        (4, 8, 12),
        [(BATCH, None), (None, EXPERTS), (BATCH, EXPERTS), (LAST, STACK)],
    ),
    "columns": (
        (4, 12, 8),
        (8, 16),
        [(None, LAST), (EXPERTS, None), (EXPERTS, LAST), (STACK, BATCH)],
    ),
    "contraction": ((8, 16), (16, 12), [(LAST, BATCH), (BATCH, None), (None, LAST)]),
    "batch": ((4, 16, 8), (4, 8, 12), [(EXPERTS, EXPERTS), (STACK, None), (None, STACK)]),
}


@DEVICES
@pytest.mark.parametrize("grouping", GROUPED)
def test_grouped_products(grouping, devices):
    """Groups begin and end anywhere in the parts of the dim that they divide."""
    first, second, placements = GROUPED[grouping]

    def product(a, b, ends):
        return torch._grouped_mm(a, b, offs=None if grouping == "batch" else ends)

    tensors = [numbers(*first).float(), numbers(*second, seed=1).float(), ENDS]
    agree(product, tensors, devices, [(*specs, None) for specs in placements], 1e-5)


@DEVICES
def test_scaled_products(devices):
    narrow = torch.float8_e4m3fn
    a, b = numbers(16, 32).to(narrow), numbers(48, 32, seed=1).to(narrow)

    def product(a, b, of_a, of_b):
        scales = {"scale_a": of_a.detach(), "scale_b": of_b.detach()}
        return torch._scaled_mm(a.detach(), b.detach().t(), **scales, out_dtype=torch.float32)

    one, rows, columns = torch.tensor(0.5), torch.rand(16, 1) + 0.5, torch.rand(1, 48) + 0.5
    for scales, marks in (((one, one), (None, None)), ((rows, columns), (BATCH, LAST))):
        placements = [
            (BATCH, None, marks[0], None),
            (None, BATCH, None, marks[1]),
            (LAST, LAST, None, None),
        ]
        agree(product, [a, b, *scales], devices, placements, 1e-3 if ON_GPU else 1e-5)


@DEVICES
def test_fake_quantization(devices):
    x, scale = numbers(13, 5).float(), torch.rand(5) + 0.1
    agree(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 1, -8, 7),
        [x],
        devices,
        [(BATCH,), (LAST,)],
        1e-5,
    )
    agree(
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s.detach(), z, 1, -8, 7),
        [x, scale, indices(3, 5).int()],
        devices,
        [(BATCH, None, None), (LAST, ("x",), ("x",)), (LAST, None, None)],
        1e-5,
    )


@DEVICES
def test_whole_numbers_and_flags(devices):
    def all_of(i):
        flags = i > 40
        several = [i << 2, i >> 1, i & 12, i ^ 5, ~i, i // 7, i % 7, torch.gcd(i, i + 6)]
        return [
            *several,
            flags.any(0),
            flags.all(1),
            flags.logical_xor(i > 60),
            i.cumsum(0),
            i.sum(1),
        ]

    agree(all_of, [indices(100, 13, 5)], devices, [(BATCH,), (LAST,)])


@DEVICES
def test_complex_numbers(devices):
    def all_of(x, y):
        z, w = torch.complex(x, y), torch.polar(x.abs() + 0.5, y)
        several = [z * w.conj(), z @ w.mT, torch.view_as_complex(torch.stack([x, y], -1)), z / w]
        return [torch.view_as_real(v.resolve_conj()) for v in several] + [z.real + w.imag, z.abs()]

    tensors = [numbers(13, 5), numbers(13, 5, seed=1)]
    agree(all_of, tensors, devices, [(BATCH, BATCH), (LAST, LAST), (BATCH, LAST), (None, BATCH)])


@DEVICES
def test_lists_of_tensors(devices):
    def all_of(x, y):
        pair = [x, y]
        return [
            *torch._foreach_norm(pair),
            *torch._foreach_max(pair),
            torch.nn.utils.get_total_norm(pair),
        ]

    agree(
        lambda x, y: all_of(x.detach(), y.detach()),
        [numbers(13, 5), numbers(7, 4, seed=1)],
        devices,
        [(BATCH, LAST), (LAST, None)],
    )


@DEVICES
def test_an_encoder_layer_in_one_kernel(devices):
    """Evaluation without gradients takes PyTorch's fused layer, in which sequences may be cut."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=torch.float64).eval()
    x, padding = numbers(13, 5, 8), flags(13, 5)
    padding[:, 0] = False
    with torch.no_grad():
        wanted = layer(x)
        on_mesh = layer.to("spmdx")
        spmdx.debug.reset_counters()
        y = on_mesh(spmdx.mark_sharding(x.to("spmdx"), line(devices), EXPERTS))
        torch.testing.assert_close(y.cpu(), wanted)
    assert ran_whole() == {}


@DEVICES
def test_weight_norm(devices):
    agree(
        lambda v, g: torch._weight_norm(v, g, 0),
        [numbers(13, 5), numbers(13, 1, seed=1)],
        devices,
        [(BATCH, BATCH), (BATCH, None), (LAST, BATCH)],
        1e-6 if ON_GPU else 1e-9,  # CUDA's kernel rounds norms to float32
    )


@DEVICES
def test_an_embedding_with_a_largest_norm(devices):
    def looked_up(w, i):
        table = w.detach().clone()
        return F.embedding(i, table, max_norm=1.0), table

    tensors = [numbers(11, 6), indices(11, 13)]
    agree(looked_up, tensors, devices, [(BATCH, None), (LAST, ("x",)), (None, ("x",))])
