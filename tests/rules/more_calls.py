# SPDX-License-Identifier: Apache-2.0
"""Calls of ops that op_db has no samples of, in the sizes that they are given (XS, S, M, L)."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
Sizes = dict[str, int]


def numbers(*shape: int, dtype=torch.float32, smooth: bool = False) -> torch.Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    return drawn.to(dtype).to("spmdx").requires_grad_(smooth)


def smooth(*shape: int) -> torch.Tensor:
    return numbers(*shape, smooth=True)


def shares(*shape: int, dtype=torch.float32) -> torch.Tensor:
    """Between 0 and 1."""
    return numbers(*shape).sigmoid().to(dtype)


def whole(high: int, *shape: int, dtype=torch.int64) -> torch.Tensor:
    """Whole numbers from 0 to below ``high``."""
    drawn = torch.randint(high, shape, generator=torch.Generator().manual_seed(high))
    return drawn.to(dtype).to("spmdx")


def with_gradients(result: torch.Tensor, *operands: torch.Tensor) -> Any:
    weights = numbers(*result.shape).sin().to(result.dtype)
    return result, torch.autograd.grad(result, operands, weights)


def ends(groups: int, last: int) -> torch.Tensor:
    """Where groups of unequal size end."""
    return torch.tensor([last * (i + 1) // groups for i in range(groups)]).int().to("spmdx")


# ---- products -----------------------------------------------------------------------------------


def grouped(a: tuple[int, ...], b: tuple[int, ...], last: int | None) -> Any:
    """Products of three groups; rows have 16 bytes or a multiple of it, which PyTorch wants."""
    x, y = smooth(*a), smooth(*b)
    return with_gradients(F.grouped_mm(x, y, offs=ends(3, last) if last else None), x, y)


def scaled(s: Sizes, rowwise: bool) -> Any:
    a = numbers(s["M"], 16).to(torch.float8_e4m3fn)
    b = numbers(32, 16).to(torch.float8_e4m3fn).t()
    scales = (shares(s["M"], 1), shares(1, 32)) if rowwise else (shares(1), shares(1))
    return aten._scaled_mm(a, b, *scales, out_dtype=torch.float32)


PRODUCTS: dict[str, Callable[[Sizes], Any]] = {
    "_int_mm": lambda s: aten._int_mm(
        whole(9, 24, s["M"], dtype=torch.int8), whole(9, s["M"], 8, dtype=torch.int8)
    ),
    "_weight_int8pack_mm": lambda s: aten._weight_int8pack_mm(
        numbers(s["S"], 32, dtype=torch.bfloat16),
        whole(9, s["M"], 32, dtype=torch.int8),
        shares(s["M"], dtype=torch.bfloat16),
    ),
    "grouped: rows": lambda s: grouped((s["L"], 8), (3, 8, 4), s["L"]),
    "grouped: columns": lambda s: grouped((3, s["M"], 4), (4, 12), 12),
    "grouped: batch": lambda s: grouped((3, s["M"], 4), (3, 4, 8), None),
    "_scaled_mm: tensors": lambda s: scaled(s, False),
    "_scaled_mm: rows": lambda s: scaled(s, True),
    "_trilinear": lambda s: aten._trilinear(
        numbers(s["S"], s["M"]), numbers(s["S"], s["M"]), numbers(s["S"], s["M"]), [], [], [], [1]
    ),
}

# ---- optimizers and scalers ---------------------------------------------------------------------


def optimized(kind: type, s: Sizes, **options: Any) -> Any:
    """Two steps of a fused optimizer."""
    weights = [smooth(s["S"], s["M"]), smooth(s["L"])]
    optimizer = kind(weights, lr=0.1, fused=True, **options)
    for _step in range(2):
        for weight in weights:
            weight.grad = weight.detach().sin()
        optimizer.step()
    return [w.detach() for w in weights]


def unscaled(s: Sizes) -> Any:
    grads, found = [numbers(s["S"], s["M"]), numbers(s["L"])], torch.zeros(1, device="spmdx")
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, shares(1))
    growth = torch.zeros(1, dtype=torch.int32, device="spmdx")
    return grads, torch._amp_update_scale_(shares(1), growth, found, 2.0, 0.5, 3)


OPTIMIZERS: dict[str, Callable[[Sizes], Any]] = {
    "fused Adagrad": lambda s: optimized(torch.optim.Adagrad, s),
    "fused Adam": lambda s: optimized(torch.optim.Adam, s, amsgrad=True, weight_decay=0.1),
    "fused AdamW": lambda s: optimized(torch.optim.AdamW, s),
    "fused SGD": lambda s: optimized(torch.optim.SGD, s, momentum=0.9, nesterov=True),
    "gradient scaler": unscaled,
}

# ---- layers -------------------------------------------------------------------------------------


def encoder_layer(s: Sizes, masked: bool) -> Any:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval().to("spmdx")
    mask = (torch.arange(s["M"]) >= s["S"]).expand(s["L"], -1).to("spmdx") if masked else None
    with torch.no_grad():
        return layer(numbers(s["L"], s["M"], 8), src_key_padding_mask=mask)


def self_attention(s: Sizes) -> Any:
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval().to("spmdx")
    x = numbers(s["L"], s["M"], 8)
    with torch.no_grad():
        return layer(x, x, x, need_weights=True)


def masked_softmax(s: Sizes) -> Any:
    scores = numbers(s["L"], 2, s["S"], s["S"])
    mask = whole(2, *scores.shape).bool()
    result = aten._masked_softmax(scores, mask, -1, 0)
    return result, aten._masked_softmax_backward(scores.sin(), result, mask, -1)


def weight_norm(s: Sizes, dim: int) -> Any:
    v = numbers(s["S"], s["M"], s["L"])
    g = shares(*(size if d == dim else 1 for d, size in enumerate(v.shape)))
    result, norms = aten._weight_norm_interface(v, g, dim)
    return result, aten._weight_norm_interface_backward(v.sin(), v, g, norms, dim)


def resized(name: str, s: Sizes, to: tuple[int, int]) -> Any:
    x = numbers(2, s["S"], s["M"], s["L"])
    op, backward = getattr(aten, name).default, getattr(aten, name + "_backward").default
    return op(x, to, False), backward(numbers(2, s["S"], *to), to, list(x.shape), False)


def padded(name: str, s: Sizes) -> Any:
    x = smooth(2, s["S"], s["M"], s["L"], s["S"])
    return with_gradients(F.pad(x, (1, 1, 1, 0, 0, 1), mode=name), x)


def quantized(s: Sizes, channels: bool) -> Any:
    x = smooth(s["S"], s["M"])
    if channels:
        scale, zero = shares(s["M"]), whole(4, s["M"], dtype=torch.int32)
        return with_gradients(torch.fake_quantize_per_channel_affine(x, scale, zero, 1, 0, 255), x)
    scale, zero = shares(), whole(4, dtype=torch.int32)
    both = torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)
    return both, with_gradients(torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), x)


LAYERS: dict[str, Callable[[Sizes], Any]] = {
    "encoder layer": lambda s: encoder_layer(s, False),
    "encoder layer, masked": lambda s: encoder_layer(s, True),
    "native attention": self_attention,
    "_masked_softmax": masked_softmax,
    "weight norm of rows": lambda s: weight_norm(s, 0),
    "weight norm of columns": lambda s: weight_norm(s, 2),
    "bicubic, antialias": lambda s: resized("_upsample_bicubic2d_aa", s, (5, 4)),
    "lanczos, antialias": lambda s: resized("_upsample_lanczos2d_aa", s, (5, 4)),
    "reflected in 3 dims": lambda s: padded("reflect", s),
    "replicated in 3 dims": lambda s: padded("replicate", s),
    "fake_quantize": lambda s: quantized(s, False),
    "fake_quantize, channels": lambda s: quantized(s, True),
    "_euclidean_dist": lambda s: aten._euclidean_dist(numbers(s["S"], 3), numbers(s["M"], 3)),
}

# ---- random numbers -----------------------------------------------------------------------------


def random(s: Sizes) -> Any:
    x, y = shares(s["S"], s["M"]), numbers(s["S"], s["M"])
    gamma = aten._standard_gamma(x.add(1))
    dirichlet = aten._sample_dirichlet(x.add(1))
    return (
        [torch.poisson(x.mul(20)), torch.binomial(whole(9, s["S"], s["M"]).float(), x)],
        [torch.randperm(s["L"], device="spmdx"), torch.normal(y, x), torch.bernoulli(x)],
        [gamma, aten._standard_gamma_grad(x.add(1), gamma)],
        [dirichlet, aten._dirichlet_grad(dirichlet, x.add(1), x.mul(9))],
    )


# ---- the rest -----------------------------------------------------------------------------------


def shifted(s: Sizes) -> Any:
    x, by = whole(99, s["S"], s["M"]), whole(4, s["M"])
    return x << by, x >> by, x.__lshift__(2), aten.__rshift__(x, by), aten.__lshift__(x, by)


def counted(s: Sizes) -> Any:
    edges = torch.linspace(-2, 2, 6).to("spmdx")
    x = numbers(s["M"], 2)
    return aten._histogramdd_from_bin_tensors(x, [edges, edges], weight=shares(s["M"]))


def complex_numbers(s: Sizes) -> Any:
    x = torch.complex(numbers(s["S"], s["M"]), numbers(s["S"], s["M"]).cos())
    matrices = numbers(2, s["S"], s["S"])
    return x.conj(), x.conj().resolve_conj(), aten._linalg_eigvals(matrices), x.mul(x.conj())


def rows_without_sums(s: Sizes) -> Any:
    """Of dtypes that are not added."""
    at, bits = whole(s["M"], s["L"]), numbers(s["M"], s["S"]).to(torch.float8_e5m2)
    words = whole(99, s["M"], s["S"]).to(torch.uint16)
    taken = [f(x) for x in (bits, words) for f in (lambda x: x[at], lambda x: F.embedding(at, x))]
    return taken, [bits.index_put((at,), bits[at], accumulate=add) for add in (False, True)]


OTHERS: dict[str, Callable[[Sizes], Any]] = {
    "random": random,
    "shifted": shifted,
    "counted": counted,
    "complex numbers": complex_numbers,
    "bits of another type": lambda s: [
        numbers(s["S"], s["M"]).view(torch.int32),
        numbers(s["S"], 8).view(torch.float64),
        numbers(s["S"], s["M"]).view(torch.bfloat16),
    ],
    "copied": lambda s: [
        numbers(s["S"], s["M"]).t().clone(),
        aten._unsafe_view(numbers(4, 6), [24]),
    ],
    "norm.ScalarOpt_dim_dtype": lambda s: aten.norm.ScalarOpt_dim_dtype(
        numbers(s["S"], s["M"]), 2, [1], False, dtype=torch.float64
    ),
    "div.Scalar_mode": lambda s: aten.div.Scalar_mode(
        numbers(s["S"], s["M"]), 2, rounding_mode="floor"
    ),
    "indices of triangles": lambda s: [
        torch.tril_indices(s["S"], s["M"], device="spmdx"),
        torch.triu_indices(s["S"], s["M"], device="spmdx"),
    ],
    "rows without sums": rows_without_sums,
    "eigenvalues": lambda s: torch.linalg.eig(numbers(s["M"], s["S"], s["S"])),
    "clamp_max by a number": lambda s: numbers(s["S"], s["M"]).clamp_max(0.5),
}

CALLS = PRODUCTS | OPTIMIZERS | LAYERS | OTHERS
