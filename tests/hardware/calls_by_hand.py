# SPDX-License-Identifier: Apache-2.0
"""Calls of ops that no sample of torch's tables makes."""

from collections.abc import Iterator
from typing import Any

import torch

Call = tuple[str, list[Any]]
_POLYNOMIALS = (
    *("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v"),
    *("chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t"),
    *("shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v"),
    "shifted_chebyshev_polynomial_w",
)


def calls_by_hand() -> Iterator[Call]:
    """Names and arguments in the order of the schema."""
    torch.manual_seed(2)
    yield from _with_numbers_of_python()
    yield from _of_integers()
    yield from _sums()
    yield from _upsampled()
    yield from _norms()
    yield from _others()


def _with_numbers_of_python() -> Iterator[Call]:
    x, y = torch.rand(4, 5) + 0.1, torch.rand(4, 5) * 3 - 1.5
    mask = y > 0
    for name in _POLYNOMIALS:
        yield f"aten.special_{name}.n_scalar", [x, 3]
        yield f"aten.special_{name}.x_scalar", [0.5, torch.tensor([0.0, 1.0, 4.0])]
    for name in ("xlog1py", "zeta"):
        yield f"aten.special_{name}.other_scalar", [x + 1, 2.5]
        yield f"aten.special_{name}.self_scalar", [2.5, x + 1]
    yield "aten.xlogy.Scalar_Self", [2.5, x]
    yield "aten.xlogy.Scalar_Other", [x, 2.5]
    for name in ("add", "sub", "rsub", "mul", "div", "fmod", "remainder", "floor_divide"):
        yield f"aten.{name}.Scalar", [y, 0.75]
        yield f"aten.{name}.Scalar", [torch.tensor(2.5), 2]
    for name in ("add", "sub", "rsub"):
        yield f"aten.{name}.Scalar", [y, 0.75, 2]
        yield f"aten.{name}.Tensor", [y, 0.75]
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield f"aten.{name}.Scalar", [y, 0.25]
    for name in ("mul", "div", "maximum"):
        yield (f"aten.{name}.Tensor" if name != "maximum" else "aten.maximum"), [y, x[:1]]
    for mode in ("floor", "trunc", None):
        yield "aten.div.Scalar_mode", [y, 0.75, mode]
    yield "aten.remainder.Scalar_Tensor", [2.5, x]
    yield "aten.copysign.Scalar", [y, -1.0]
    yield "aten.clamp_max", [y, 0.5]
    yield "aten.clamp_min", [y, -0.5]
    yield "aten.lerp.Scalar", [x, y, 0.25]
    yield "aten.pow.Scalar", [2.5, y]
    yield "aten.where.Scalar", [mask, 1.5, -2.5]
    yield "aten.where.ScalarOther", [mask, x, -2.5]
    yield "aten.where.ScalarSelf", [mask, 1.5, x]
    yield "aten.isin.Scalar_Tensor", [2.0, torch.tensor([1.0, 2.0])]
    yield "aten.isin.Tensor_Scalar", [torch.tensor([1.0, 2.0]), 2.0]
    yield "aten.bucketize.Scalar", [0.5, torch.tensor([0.0, 0.25, 1.0])]
    yield "aten.fill.Tensor", [x, torch.tensor(2.5)]
    yield "aten.fill.Scalar", [x, 2.5]


def _of_integers() -> Iterator[Call]:
    x, y = torch.tensor([[5, -3, 0], [7, 12, -8]]), torch.tensor([1, 2, 3])
    for name in ("and", "or", "xor"):
        yield f"aten.bitwise_{name}.Scalar", [x, 6]
        yield f"aten.bitwise_{name}.Scalar_Tensor", [6, x]
    for name in ("left", "right"):
        yield f"aten.bitwise_{name}_shift.Tensor_Scalar", [x, 2]
        yield f"aten.bitwise_{name}_shift.Scalar_Tensor", [64, y]
    for name in ("lshift", "rshift"):
        yield f"aten.__{name}__.Scalar", [x, 2]
        yield f"aten.__{name}__.Tensor", [x, y]
    for name in ("fmod", "remainder", "floor_divide"):
        yield f"aten.{name}.Scalar", [x, -3]
    yield "aten.remainder.Scalar_Tensor", [-7, y]
    yield "aten.div.Scalar_mode", [x, 3, "floor"]
    yield "aten._is_all_true", [x > 4]
    yield "aten._is_any_true", [x > 100]
    yield "aten.max.other", [x, y]
    yield "aten.min.other", [x, y]
    yield "aten._int_mm", [torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8).char()]


def _sums() -> Iterator[Call]:
    x = torch.randn(3, 4, 5)
    for name in ("var", "std", "var_mean", "std_mean"):
        yield f"aten.{name}", [x]
        yield f"aten.{name}", [x, False]
        yield f"aten.{name}.dim", [x, [1], False, True]
        yield f"aten.{name}.dim", [x, [0, 2]]
    yield "aten.norm.Scalar", [x, 2]
    yield "aten.norm.Scalar", [x, 1]
    yield "aten.norm.ScalarOpt_dim", [x, 2, [1]]
    yield "aten.norm.ScalarOpt_dim_dtype", [x, 2, [1], False, torch.float32]
    yield "aten.max.other", [x, x[:1] * 2]
    yield "aten.min.other", [x, x[:1] * 2]
    yield "aten._euclidean_dist", [x[0], x[1]]
    yield "aten.sum", [torch.tensor(2.5)]
    for name in ("Scalar_Tensor", "Tensor_Scalar", "Tensor_Tensor"):
        ends = [torch.tensor(e) if kind == "Tensor" else e for kind, e in _kinds(name)]
        yield f"aten.linspace.{name}", [*ends, 7]
        yield f"aten.logspace.{name}", [*ends, 7]


def _kinds(name: str) -> list[tuple[str, float]]:
    return list(zip(name.split("_"), (0.5, 2.0), strict=True))


def _upsampled() -> Iterator[Call]:
    for name, dims, aligned in (
        *(("linear1d", 1, True), ("bilinear2d", 2, True), ("trilinear3d", 3, True)),
        *(("bicubic2d", 2, True), ("nearest1d", 1, False), ("nearest2d", 2, False)),
        ("nearest3d", 3, False),
    ):
        x = torch.randn(1, 2, *[4] * dims)
        corners = [False] if aligned else []
        yield f"aten.upsample_{name}.vec", [x, None, *corners, [2.0] * dims]
        yield f"aten.upsample_{name}.vec", [x, [3] * dims, *corners, None]
        if not aligned:
            yield f"aten._upsample_nearest_exact{dims}d.vec", [x, [6] * dims, None]
    for name in ("bilinear", "bicubic", "lanczos"):
        x = torch.randn(1, 2, 6, 6)
        yield f"aten._upsample_{name}2d_aa", [x, [3, 4], False]
        yield f"aten._upsample_{name}2d_aa.vec", [x, [3, 4], False, None]
        grad = torch.randn(1, 2, 3, 4)
        yield f"aten._upsample_{name}2d_aa_backward", [grad, [3, 4], [1, 2, 6, 6], False]


def _norms() -> Iterator[Call]:
    x, weight, bias = torch.randn(3, 4, 5), torch.rand(4) + 0.5, torch.randn(4)
    mean, var = torch.randn(4), torch.rand(4) + 0.5
    for training in (True, False):
        args = [x, weight, bias, mean, var, training, 0.1, 1e-5]
        yield "aten._native_batch_norm_legit_functional", args
    yield "aten._native_batch_norm_legit.no_stats", [x, weight, bias, True, 0.1, 1e-5]
    v, g = torch.randn(3, 4), torch.rand(3, 1) + 0.5
    yield "aten._weight_norm_interface", [v, g]
    norms = v.norm(2, dim=1, keepdim=True)
    yield "aten._weight_norm_interface_backward", [torch.randn(3, 4), v, g, norms, 0]
    mask = torch.rand(3, 4, 5) > 0.5
    yield "aten._masked_softmax", [x, mask, -1]
    soft = torch._masked_softmax(x, mask, -1)
    yield "aten._masked_softmax_backward", [torch.randn(3, 4, 5), soft, mask, -1]


def _others() -> Iterator[Call]:
    x, step = torch.randn(3, 4), torch.tensor(0.1)
    zero = torch.tensor(0, dtype=torch.int32)
    quantised = "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
    yield quantised, [x, step, zero, torch.tensor([1]), -8, 7]
    yield "aten.fake_quantize_per_tensor_affine_cachemask", [x, 0.1, 0, -8, 7]
    zeros = torch.zeros(3, dtype=torch.int32)
    rows = [x, torch.rand(3) + 0.1, zeros, 0, -8, 7]
    yield "aten.fake_quantize_per_channel_affine_cachemask", rows
    yield "aten._index_put_impl", [x, [torch.tensor([0, 2])], torch.randn(2, 4), True]
    yield "aten._conj_physical", [x]
    yield "aten.conj_physical", [x]
    yield "aten._dirichlet_grad", [torch.rand(3), torch.rand(3) + 1, torch.full((3,), 6.0)]
    yield "aten._standard_gamma_grad", [torch.rand(3) + 1, torch.rand(3)]
    a, b = torch.randn(8, 16).bfloat16(), torch.randn(2, 16, 8).bfloat16()
    yield "aten._grouped_mm", [a, b, torch.tensor([3, 8], dtype=torch.int32)]
    yield "aten.view.dtype", [torch.randn(3, 4), torch.int32]
    yield "aten.full", [[2, 3], 2.5, torch.float32]
    yield "aten.full", [[2, 0], 3, torch.int64]
    yield "aten.hash_tensor", [x]
