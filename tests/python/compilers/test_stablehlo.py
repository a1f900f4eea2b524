# SPDX-License-Identifier: Apache-2.0
"""Single ops through StableHLO and XLA, in uses in which their texts could easily be wrong."""

import math

import pytest
import torch
from spmdx._segments.graph_module import operator
from spmdx._segments.segment import DTYPES, Op, Segment, Type, Value
from spmdx._targets import pjrt
from spmdx._targets.stablehlo import raising, stablehlo_text

pytest.importorskip("jaxlib")
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def type_of(tensor):
    return Type(NAMES[tensor.dtype], tuple(tensor.shape))


def call(name, *args):
    """What XLA and what PyTorch give."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    kinds = [type_of(tensor) for tensor in tensors]
    numbers = iter(range(len(tensors)))
    given = tuple(Value(next(numbers)) if isinstance(arg, torch.Tensor) else arg for arg in args)
    expected = operator(name)(*args)
    made = type_of(expected)
    at = len(tensors)
    inputs = tuple(enumerate(kinds))
    segment = Segment("", inputs, 0, (Op(name, given, at, (made,)),), ((at, made),))
    run = raising(pjrt.loaded(pjrt.compiled(stablehlo_text(segment))), 1)
    return run(tensors)[0], expected


FLOATS = torch.tensor([-1.0, 300.7, 3e9, -3e9, math.nan, math.inf, -0.5])
CASES = {
    "u8 >> 1": (
        "aten.bitwise_right_shift.Tensor_Scalar",
        torch.tensor([200, 130], dtype=torch.uint8),
        1,
    ),
    "i64 >> 1": ("aten.bitwise_right_shift.Tensor_Scalar", torch.tensor([-5, 130]), 1),
    "to i64": ("prims.convert_element_type", FLOATS, torch.int64),
    "to i32": ("prims.convert_element_type", FLOATS, torch.int32),
    "to u8": ("prims.convert_element_type", FLOATS[:2], torch.uint8),
    "flip no dim": ("aten.flip", torch.arange(6.0).reshape(2, 3), []),
    "flip": ("aten.flip", torch.arange(6.0).reshape(2, 3), [-1]),
    "power": ("aten.pow.Tensor_Scalar", torch.tensor([-0.0, -math.inf, 4.0, 0.0]), -0.5),
    "index_select": ("aten.index_select", torch.randn(3, 4, 2), 1, torch.tensor([3, 0])),
    "embedding": ("aten.embedding", torch.randn(5, 3), torch.tensor([[4, 0], [1, 1]])),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_pytorch(name):
    found, expected = call(*CASES[name])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("bad", [-1, 5])
def test_places_that_are_not_there_are_found(bad):
    table, index = torch.randn(5, 3), torch.tensor([1, 2])
    kinds = (0, type_of(table)), (1, type_of(index))
    made = Type("f32", (2, 3))
    for op in (
        Op("aten.embedding", (Value(0), Value(1)), 2, (made,)),
        Op("aten.index_select", (Value(0), 0, Value(1)), 2, (made,)),
    ):
        segment = Segment("", kinds, 0, (op,), ((2, made),))
        run = raising(pjrt.loaded(pjrt.compiled(stablehlo_text(segment))), 1)
        run([table, index])
        with pytest.raises(IndexError):
            run([table, torch.tensor([1, bad])])


def test_rows_that_see_nothing_have_the_logarithm_of_pytorch():
    q, k, v = (torch.randn(1, 2, 3, 4) for _ in range(3))
    mask = torch.zeros(1, 1, 3, 3)
    mask[..., 1, :] = -math.inf
    aten = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    from spmdx._segments.own_decompositions import OWN

    found = OWN[aten.default](q, k, v, attn_mask=mask)
    for mine, theirs in zip(found, aten(q, k, v, attn_mask=mask), strict=True):
        torch.testing.assert_close(mine, theirs)
