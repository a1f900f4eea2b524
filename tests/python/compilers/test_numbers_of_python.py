# SPDX-License-Identifier: Apache-2.0
"""Numbers of Python within segments promote as PyTorch has it."""

import compilers_of_tests
import pytest
import spmdx
import torch

DTYPES = [torch.bool, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]
DTYPES.append(torch.float64)


def with_numbers(x):
    """Of every kind, on both sides, within comparisons, and of what was made of one."""
    made = [x * 3, 3 * x, x * 0.1, 0.1 + x, x + True, x / 7, 7 / (x + 2), x * (2**30 * 1.0)]
    made += [x > 0.1, x == 0.1, 2 >= x, torch.where(x > 1, x, 0.3), torch.where(x > 1, 5, x)]
    made += [torch.maximum(x, x * 2) * 0.7, (x * 2 + 1) * 0.1, torch.lerp(x + 0.5, x * 0.1, 0.3)]
    return made + [(x + 1).sum() * 0.1 + 3, (x * 2).max() * 0.3 > 0.6]


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def default_dtype(request):
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (5,)], ids=str)
def test_they_promote_as_in_pytorch(dtype, shape, default_dtype):
    x = torch.arange(5).to(dtype) if shape else torch.tensor(2).to(dtype)
    x = x if dtype == torch.bool or not dtype.is_floating_point else x * 0.1
    expected = with_numbers(x)
    spmdx.set_compiler(compilers_of_tests.OpByOp(), compile_now=True)
    found = with_numbers(x.to("spmdx"))
    spmdx.mark_step()
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        assert mine.dtype == theirs.dtype, number
        torch.testing.assert_close(mine.cpu(), theirs, rtol=0, atol=0, msg=str(number))
    segments = spmdx.explain().segments
    assert segments.segments and {s.state for s in segments.segments} == {"compiled"}
    if dtype.itemsize != 2 or not dtype.is_floating_point:  # tensors for numbers would be rounded
        assert segments.compiled_ops > 0.7


def test_one_that_changes_is_read_anew():
    spmdx.set_compiler(compilers_of_tests.OpByOp(), compile_now=True)
    x = torch.linspace(-1, 1, 7)
    for number in (0.5, 0.5, 0.25, 3, 0.5):
        y = (x.to("spmdx") * 2 + number).exp() * number
        spmdx.mark_step()
        torch.testing.assert_close(y.cpu(), (x * 2 + number).exp() * number, rtol=0, atol=0)
