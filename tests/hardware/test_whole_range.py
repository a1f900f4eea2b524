# SPDX-License-Identifier: Apache-2.0
"""Functions of floats far from where a first run looks: signs, zeros, infinite numbers, NaN."""

import dataclasses
import itertools
import math
import pathlib
import shutil

import pytest
import torch
from case_segments import library
from gathered_calls import is_possible, is_random, known
from spmdx._compiling.in_force import _OWN
from spmdx._segments.graph_module import operator
from spmdx._segments.segment import DTYPES, Op, Segment, Type, Value
from spmdx.compilers import NotTaken

NEEDS = {"xla": "jaxlib", "iree": "iree.compiler", "onnxruntime": "onnxruntime"}
SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 1e-3, 1e3, 1e7, 1e9, math.inf)
NUMBERS = (
    *(sign * size for size in SIZES for sign in (1, -1)),
    math.nan,
    3.0,
    -0.25,
    0.25,
)  # 576 pairs: whole vectors
PAIRS = tuple(zip(*itertools.product(NUMBERS, NUMBERS), strict=True))
ULPS = 400
OF_NUMBERS = {
    "aten.pow.Tensor_Scalar": (-3, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 5, 0.3),
    "aten.fmod.Scalar": (1.5, -2),
    "aten.remainder.Scalar": (1.5, -2),
}
# What is made of elements, and is no function of them.
NOT_OF_ELEMENTS = ("empty", "rand", "zeros", "ones", "full", "clone", "copy", "cum", "sort")
# PyTorch's own numbers differ with where in memory an element is.
LEFT_OUT = {"aten.gelu": [math.inf]}


@dataclasses.dataclass(frozen=True)
class Call:
    """An op of one tensor, or of more, and of a number behind them."""

    name: str
    tensors: int
    numbers: tuple[float, ...] = ()

    def __call__(self, tensors):
        return operator(self.name)(*tensors[: self.tensors], *self.numbers)


def tensors_of(name):
    """How many tensors an op is a function of, if it is one of floats and needs nothing else."""
    schema = operator(name)._schema
    needed = [a for a in schema.arguments if not a.has_default_value()]
    are_tensors = all(str(a.type) == "Tensor" for a in needed)
    returned = [str(r.type) for r in schema.returns]
    if schema.is_mutable or not are_tensors or returned != ["Tensor"]:
        return 0
    is_other = any(part in name for part in NOT_OF_ELEMENTS) or is_random(name)
    return 0 if is_other or any(r.alias_info for r in schema.returns) else len(needed)


def is_of_elements(call, given):
    """Whether it gives a number for each of 1-D tensors, which the others do not matter for."""
    try:
        found = call(given)
        parts = call([t[::2].contiguous() for t in given])
    except (RuntimeError, IndexError):
        return False
    is_float = found.is_floating_point() and found.shape == given[0].shape
    return is_float and torch.equal(found[::2].isnan(), parts.isnan())


def calls_of(compiler, given):
    claimed = list(compiler.ops([name for name in known() if is_possible(name)]))
    made = [Call(name, tensors_of(name)) for name in claimed]
    made = [call for call in made if 1 <= call.tensors <= 2]
    made += [Call(n, 1, (x,)) for n in OF_NUMBERS if n in claimed for x in OF_NUMBERS[n]]
    return [call for call in made if is_of_elements(call, given)]


def compiled(compiler, calls, dtype, folder):
    """What runs the calls that it takes, and these."""
    kind = Type(dtype, (len(PAIRS[0]),))
    while True:
        ops = [
            Op(c.name, (*map(Value, range(c.tensors)), *c.numbers), 2 + i, (kind,))
            for i, c in enumerate(calls)
        ]
        outputs = tuple((op.first, kind) for op in ops)
        segment = Segment("", ((0, kind), (1, kind)), 0, tuple(ops), outputs)
        try:
            compiler.compile(segment, folder)
            run = compiler.load(segment, folder)
            return library(run) if isinstance(run, pathlib.Path) else run, calls
        except NotTaken as error:
            calls = [c for i, c in enumerate(calls) if i not in error.reasons]


def off(call, found, expected, given):
    """The numbers that it is wrong for, with what it gives and what PyTorch does."""
    info = torch.finfo(expected.dtype)
    differ = found.isnan() != expected.isnan()
    # Beside what is relative, a quarter of an ulp of 1: differences cancel.
    near = (found - expected).abs() <= (expected.abs() * ULPS + 0.25) * info.eps
    differ |= ~expected.isnan() & ~near & (found != expected)
    for number in LEFT_OUT.get(call.name, ()):
        differ &= given[0] != number
    at = differ.nonzero().flatten().tolist()
    read = [*given[: call.tensors], found, expected]
    return [tuple(tensor[i].item() for tensor in read) for i in at]


@pytest.mark.parametrize("name", ["inductor", "xla", "iree", "onnxruntime", "hls"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_are_those_of_pytorch_for_all_numbers(name, dtype, tmp_path):
    if name in ("hls", "inductor") and shutil.which("g++") is None:
        pytest.skip("no g++")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    compiler = _OWN[name]()
    if dtype not in compiler.dtypes:
        pytest.skip(f"{name} takes no {dtype}")
    given = [torch.tensor(numbers, dtype=DTYPES[dtype]) for numbers in PAIRS]
    run, calls = compiled(compiler, calls_of(compiler, given), dtype, tmp_path)
    assert len(calls) > 60
    rows = [
        (call, *off(call, found, call(given), given)[:4])
        for call, found in zip(calls, run(given), strict=True)
    ]
    assert not [row for row in rows if len(row) > 1]
