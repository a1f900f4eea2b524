# SPDX-License-Identifier: Apache-2.0
"""What XLA knows of a program on a TPU, on a machine that has none."""

import random
import sys

import pytest
from spmdx._segments.segment import DTYPES, Type
from spmdx._targets import pjrt
from spmdx._targets.tiles import tiled_bytes
from stablehlo_texts import matmul, tensor_type, unary

pytest.importorskip("jaxlib")


@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"])
def test_a_program_is_compiled_for_a_chip_that_is_not_there(topology):
    pytest.importorskip("libtpu")
    found = pjrt.compile_ahead(matmul(1024), topology)
    assert found.chip.startswith(f"TPU {topology[:2]}")
    assert found.argument_bytes == found.output_bytes == 4 * 1024 * 1024
    assert found.peak_bytes >= found.argument_bytes + found.output_bytes
    assert found.flops >= 2 * 1024**3 and 0 < found.optimal_seconds < 0.01


def test_functions_that_stablehlo_has_not_are_taken():
    pytest.importorskip("libtpu")
    kind = tensor_type((256,))
    text = unary("chlo.erf", kind).replace(f": {kind}\n", f": {kind} -> {kind}\n")
    assert pjrt.compile_ahead(text, "v5e:2x2").argument_bytes == 1024


SIZES = (1, 2, 3, 5, 8, 9, 31, 100, 128, 129, 300, 513)


@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i64", "i32", "i8"])
def test_bytes_in_tiles_are_those_that_xla_counts(dtype, topology):
    pytest.importorskip("libtpu")
    draw = random.Random(f"{dtype} on {topology}")
    shapes = [tuple(draw.choices(SIZES, k=rank)) for rank in (0, 1, 1, 2, 2, 3, 3)]
    kinds = [tensor_type(shape, DTYPES[dtype]) for shape in shapes]
    operands = ", ".join(f"%{i}: {kind}" for i, kind in enumerate(kinds))
    sums = "".join(
        f"    %s{i} = stablehlo.add %{i}, %{i} : {kind}\n" for i, kind in enumerate(kinds)
    )
    results = ", ".join(f"%s{i}" for i in range(len(kinds)))
    text = (
        f"module @m {{\n  func.func public @main({operands}) -> ({', '.join(kinds)}) {{\n{sums}"
        f"    return {results} : {', '.join(kinds)}\n  }}\n}}\n"
    )
    found = pjrt.compile_ahead(text, topology)
    predicted = sum(tiled_bytes(Type(dtype, shape)) for shape in shapes)
    assert found.argument_bytes == pytest.approx(predicted, rel=0.01)


def test_a_topology_that_is_none_is_an_error():
    pytest.importorskip("libtpu")
    with pytest.raises(RuntimeError, match="v9"):
        pjrt.compile_ahead(matmul(64), "v9:2x2")


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(ImportError, match="pip install --no-deps libtpu"):
        pjrt.compile_ahead(matmul(64), "v5e:2x2")
