# SPDX-License-Identifier: Apache-2.0
"""IREE's modules: tensors in, new tensors out, on modules that are written by hand."""

import functools
import gc
import subprocess
import sys
import threading

import pytest
import spmdx
import torch
from spmdx._targets import iree
from stablehlo_texts import (
    NAMES,
    SHAPES,
    aliasing,
    matmul,
    module,
    odd,
    overlap,
    segment_of,
    some,
    tensor_type,
    unary,
)

pytest.importorskip("iree.compiler")
pytest.importorskip("iree.runtime")

PLAIN = tensor_type((4, 8))


@functools.cache  # half a second each
def runs(text, outputs=1):
    return iree.loaded(iree.compile_for(text, "cpu:host"), outputs)


@pytest.fixture
def tanh():
    return runs(unary("stablehlo.tanh", PLAIN))


@pytest.mark.parametrize(
    "dtype, shape",
    [*((dtype, (4, 8)) for dtype in NAMES), *((torch.bfloat16, shape) for shape in SHAPES)],
    ids=str,
)
def test_results_are_new_tensors_that_share_no_memory(dtype, shape):
    given = some(shape, dtype)
    kept = given.clone()
    found = runs(aliasing(shape, dtype), 5)([given])
    square = given & given if dtype == torch.bool else given * given
    for mine, expected in zip(found, [given, given, square, square, square], strict=True):
        assert mine.dtype == dtype and mine.is_contiguous()
        assert torch.equal(mine.view(shape), expected)
    assert not overlap([given, *found])
    for each in found:
        each.zero_()
    assert torch.equal(given, kept)


def test_part_of_an_input_is_a_new_tensor():
    wide, narrow = tensor_type((8, 16)), tensor_type((2, 16))
    part = f"%0 = stablehlo.slice %arg0 [4:6, 0:16] : ({wide}) -> {narrow}"
    given = torch.rand(8, 16)
    (found,) = runs(module([wide], [part], [("%0", narrow)]))([given])
    assert torch.equal(found, given[4:6]) and not overlap([given, found])


def test_results_of_many_sizes_share_no_memory():
    kinds = [tensor_type((size,)) for size in (1, 3, 100, 7)]
    lines = [f"%{i} = stablehlo.tanh %arg{i} : {kind}" for i, kind in enumerate(kinds)]
    text = module(kinds, lines, [(f"%{i}", kind) for i, kind in enumerate(kinds)])
    given = [torch.rand(size) for size in (1, 3, 100, 7)]
    found = runs(text, 4)(given)
    for mine, theirs in zip(found, given, strict=True):
        torch.testing.assert_close(mine, theirs.tanh())
    assert not overlap([*given, *found])


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 8, 15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
def test_inputs_may_begin_anywhere_in_memory(offset, dtype):
    given = odd((4, 8), offset, dtype)
    kind = tensor_type((4, 8), dtype)
    text = module([kind], [f"%0 = stablehlo.maximum %arg0, %arg0 : {kind}"], [("%0", kind)])
    (found,) = runs(text)([given])
    assert torch.equal(found, given)


@pytest.mark.parametrize(
    "given",
    [
        torch.rand(8, 4).t(),
        torch.rand(4, 1).expand(4, 8),
        torch.rand(4, 8, requires_grad=True),
        torch._neg_view(torch.rand(4, 8)),
        torch.rand(4, 16)[:, ::2],
    ],
    ids=["transposed", "expanded", "with a gradient", "negative", "of a step"],
)
def test_inputs_may_be_laid_anyhow(given, tanh):
    (found,) = tanh([given])
    assert not found.requires_grad
    torch.testing.assert_close(found, given.detach().tanh())


def test_strides_of_dims_of_size_1_say_nothing():
    given = torch.rand(8).as_strided((1, 8, 1), (3, 1, 5))
    (found,) = runs(unary("stablehlo.tanh", tensor_type((1, 8, 1))))([given])
    torch.testing.assert_close(found, given.tanh())


def test_constants_are_given_anew_each_time():
    run = runs(module([], [f"%0 = stablehlo.constant dense<1.5> : {PLAIN}"], [("%0", PLAIN)]))
    run([])[0].zero_()
    assert (run([])[0] == 1.5).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_64_bits_stay_64(dtype):
    kind = tensor_type((4,), dtype)
    given = (2.0**52 + torch.arange(4, dtype=torch.float64)).to(dtype)
    text = module([kind], [f"%0 = stablehlo.add %arg0, %arg0 : {kind}"], [("%0", kind)])
    assert torch.equal(runs(text)([given])[0], given + given)


def test_threads_run_one_module_at_once(tanh):
    wrong = []

    def work(number):
        for step in range(100):
            given = torch.full((4, 8), (number + step) / 100)
            if not torch.allclose(tanh([given])[0], given.tanh(), atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_outlive_their_module_and_are_freed_by_other_threads():
    run = iree.loaded(iree.compile_for(matmul(256), "cpu:host"), 1)
    given = torch.rand(256, 256)
    found = [run([given])[0] for _ in range(8)]
    del run
    gc.collect()
    torch.testing.assert_close(found[0], given @ given)
    thread = threading.Thread(target=found.clear)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "given",
    [[], [torch.rand(3)], [torch.rand(4, 8).double()], [torch.rand(4, 8), torch.rand(4, 8)]],
    ids=["none", "of another shape", "of another dtype", "too many"],
)
def test_other_inputs_are_an_error(given, tanh):
    with pytest.raises(ValueError, match="INVALID_ARGUMENT"):
        tanh(given)
    torch.testing.assert_close(tanh([torch.ones(4, 8)])[0], torch.ones(4, 8).tanh())


def test_a_text_that_is_none_is_an_error():
    with pytest.raises(RuntimeError, match="expected non-function type"):
        iree.compile_for("module { func.func @main( }", "cpu:host")


@pytest.mark.parametrize("damage", [lambda p: b"", lambda p: p[:99], lambda p: b"x" * 999])
def test_damaged_modules_are_not_loaded(damage, tmp_path):
    program = iree.compile_for(unary("stablehlo.tanh", PLAIN), "cpu:host")
    (tmp_path / "segment.vmfb").write_bytes(damage(program))
    (tmp_path / "segment.mlir").write_text(unary("stablehlo.tanh", PLAIN))
    with pytest.raises((ValueError, RuntimeError)):
        iree.Iree().load(segment_of(1), tmp_path)


TRUTHS = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
OF_TRUTHS = {
    "sum": lambda x, y: (x + y) & True,
    "product": lambda x, y: (x * y) | False,
    "sums of products": lambda x, y: (x * y + y * x + x) & True,
    "numbers of sums": lambda x, y: (x + y).float() * 2,
    "counts": lambda x, y: (x + y).sum() + (x * y).cumsum(0),
    "extremes": lambda x, y: torch.maximum(x, y) ^ torch.minimum(x, y),
    "summed as truths": lambda x, y: (x ^ y).sum(dtype=torch.bool) & True,
}


@pytest.mark.parametrize("name", OF_TRUTHS)
def test_truths_are_added_as_by_pytorch(name):
    spmdx.set_compiler("iree", compile_now=True, check=False)
    found = OF_TRUTHS[name](*(t.to("spmdx") for t in TRUTHS)).cpu()
    assert torch.equal(found, OF_TRUTHS[name](*TRUTHS))


def test_what_it_is_wrong_in_is_left_and_what_is_around_it_is_compiled():
    x = torch.tensor([-2.0, 0.0, 1e7, 3.0], dtype=torch.float64)

    def program(x):
        return ((((x * 2 + 1).tanh() * 3 - 1) ** 5).sin() + (x**4)) / 2

    spmdx.set_compiler("iree", compile_now=True)
    torch.testing.assert_close(program(x.to("spmdx")).cpu(), program(x))
    rows = spmdx.explain().segments.segments
    assert len(rows) > 1 and {row.state for row in rows} == {"compiled"}
    assert {op for op, _ in spmdx.compilers.left()} == {"aten.tanh", "aten.pow.Tensor_Scalar"}


@pytest.mark.parametrize("target", ["rocm:gfx942", "vulkan:rdna3", "cuda:sm_89", "metal"])
def test_chips_that_are_not_there_are_compiled_for(target):
    assert len(iree.compile_for(matmul(64), target)) > 1000


def test_other_targets_are_an_error():
    with pytest.raises(ValueError, match="'tpu' is no target. Expected one of cpu, rocm"):
        iree.compile_for(matmul(64), "tpu")


def test_the_version_names_the_packages_and_imports_nothing():
    code = (
        "import sys, spmdx; from spmdx._targets.iree import Iree; print(Iree().version()); "
        "assert 'iree' not in sys.modules"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.startswith("3.") and len(said.stdout.split()) == 3


@pytest.mark.parametrize("package", ["iree.compiler.tools", "iree.runtime"])
def test_without_the_packages_it_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'spmdx\[iree\]'"):
        iree.Iree().ops(["aten.mm"])


def test_a_program_that_ends_with_results_says_nothing():
    code = (
        "import torch; from spmdx._targets import iree; "
        f"program = iree.compile_for({unary('stablehlo.tanh', PLAIN)!r}, 'cpu:host'); "
        "kept = iree.loaded(program, 1)([torch.ones(4, 8)]); kept[0].add_(1)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")


ONE, TWO = torch.tensor([1]), torch.tensor([2.5])
OVER_OPERANDS = {
    "scatter": lambda x: x.scatter(0, ONE.to(x.device), 7.0) * 2,
    "scatter_add": lambda x: x.scatter_add(0, ONE.to(x.device), TWO.to(x.device)).exp(),
    "index_fill": lambda x: x.index_fill(0, ONE.to(x.device), 5.0) * 2,
    "index_put": lambda x: x.index_put((ONE.to(x.device),), TWO.to(x.device)) * 2,
    "of a view": lambda x: x.view(2, -1).scatter(1, ONE.view(1, 1).to(x.device), 7.0) * 2,
    "of a part": lambda x: x[: len(x) // 2].scatter(0, ONE.to(x.device), 7.0) * 2,
}


@pytest.mark.parametrize("name", OVER_OPERANDS)
@pytest.mark.parametrize("size", [6, 4096])
def test_tensors_that_ops_write_over_are_copies(name, size):
    x = torch.randn(size)
    on_device = x.to("spmdx")
    spmdx.mark_step()
    spmdx.set_compiler("iree", compile_now=True)
    for _ in range(3):
        found = OVER_OPERANDS[name](on_device)
        spmdx.mark_step()
        torch.testing.assert_close(found.cpu(), OVER_OPERANDS[name](x))
        assert torch.equal(on_device.cpu(), x)
    assert {row.state for row in spmdx.explain().segments.segments} == {"compiled"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_equal_numbers_stay_in_order(dtype):
    """Though a first run had none."""
    spmdx.set_compiler("iree", compile_now=True)
    for x in (torch.arange(64).flip(0), torch.arange(64) % 5):
        values, places = (x.to(dtype).to("spmdx") * 2).sort(stable=True)
        expected = (x.to(dtype) * 2).sort(stable=True)
        torch.testing.assert_close((values.cpu(), places.cpu()), tuple(expected))
