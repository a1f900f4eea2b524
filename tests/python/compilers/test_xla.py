# SPDX-License-Identifier: Apache-2.0
"""XLA's programs: tensors in, new tensors out, on modules that are written by hand."""

import gc
import subprocess
import sys
import threading

import pytest
import torch
from spmdx._targets import xla
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

pytest.importorskip("jaxlib")
from spmdx._targets import pjrt  # noqa: E402

PLAIN = tensor_type((4, 8))


@pytest.fixture(params=[False, True], ids=["shared", "copied"])
def client(request):
    """That of the CPU, which shares its memory, or is told to copy as a chip has to."""
    return pjrt.cpu(copies=request.param)


@pytest.fixture
def runs(client):
    return lambda text: client.loaded(client.compiled(text))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_results_are_new_tensors_that_share_no_memory(shape, dtype, runs):
    given = some(shape, dtype)
    kept = given.clone()
    found = runs(aliasing(shape, dtype))([given])
    square = given & given if dtype == torch.bool else given * given
    for mine, expected in zip(found, [given, given, square, square, square], strict=True):
        assert mine.dtype == dtype and mine.is_contiguous()
        assert torch.equal(mine.view(shape), expected)
    assert not overlap([given, *found])
    for each in found:
        each.zero_()
    assert torch.equal(given, kept)


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 8, 15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
def test_inputs_may_begin_anywhere_in_memory(offset, dtype, runs):
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
def test_inputs_may_be_laid_anyhow(given, runs):
    (found,) = runs(unary("stablehlo.tanh", PLAIN))([given])
    assert not found.requires_grad
    torch.testing.assert_close(found, given.detach().tanh())


def test_strides_of_dims_of_size_1_say_nothing(runs):
    given = torch.rand(8).as_strided((1, 8, 1), (3, 1, 5))
    (found,) = runs(unary("stablehlo.tanh", tensor_type((1, 8, 1))))([given])
    torch.testing.assert_close(found, given.tanh())


def test_constants_are_given_anew_each_time(runs):
    run = runs(module([], [f"%0 = stablehlo.constant dense<1.5> : {PLAIN}"], [("%0", PLAIN)]))
    run([])[0].zero_()
    assert (run([])[0] == 1.5).all()


def test_what_is_rounded_to_16_bits_is(runs):
    wide, narrow = tensor_type((64,)), tensor_type((64,), torch.bfloat16)
    lines = [
        f"%0 = stablehlo.convert %arg0 : ({wide}) -> {narrow}",
        f"%1 = stablehlo.convert %0 : ({narrow}) -> {wide}",
    ]
    given = torch.rand(64)
    assert torch.equal(
        runs(module([wide], lines, [("%1", wide)]))([given])[0], given.bfloat16().float()
    )


def test_no_number_stays_none(runs):
    given = torch.tensor([float("nan"), 1.0, float("inf"), -float("inf")])
    kind = tensor_type((4,))
    text = module([kind], [f"%0 = stablehlo.maximum %arg0, %arg0 : {kind}"], [("%0", kind)])
    torch.testing.assert_close(runs(text)([given])[0], given, equal_nan=True)


def test_threads_run_one_program_at_once(runs):
    run, wrong = runs(unary("stablehlo.tanh", PLAIN)), []

    def work(number):
        for step in range(100):
            given = torch.full((4, 8), (number + step) / 100)
            if not torch.allclose(run([given])[0], given.tanh(), atol=1e-6):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_outlive_their_program_and_are_freed_by_other_threads(client, runs):
    run = runs(matmul(256))
    given = torch.rand(256, 256)
    found = [run([given])[0] for _ in range(8)]
    del run
    gc.collect()
    torch.testing.assert_close(found[0], given @ given)
    thread = threading.Thread(target=found.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert not client.native.live_arrays()


@pytest.mark.parametrize(
    "given",
    [[], [torch.rand(3)], [torch.rand(4, 8).double()], [torch.rand(4, 8), torch.rand(4, 8)]],
    ids=["none", "of another shape", "of another dtype", "too many"],
)
def test_other_inputs_are_an_error(given, runs):
    run = runs(unary("stablehlo.tanh", PLAIN))
    with pytest.raises(RuntimeError, match="INVALID_ARGUMENT"):
        run(given)


def test_a_text_that_is_none_is_an_error():
    with pytest.raises(RuntimeError, match="expected"):
        pjrt.compiled("module { func.func @main( }")


@pytest.mark.parametrize(
    "damage", [lambda p: b"", lambda p: p[:100], lambda p: p[:-50], lambda p: b"x" * 999]
)
def test_damaged_programs_are_not_loaded(damage, tmp_path):
    (tmp_path / "segment.xla").write_bytes(damage(pjrt.compiled(unary("stablehlo.tanh", PLAIN))))
    with pytest.raises(RuntimeError):
        xla.Xla().load(segment_of(1), tmp_path)


def test_the_version_names_the_library_and_imports_nothing():
    code = (
        "import sys, spmdx; from spmdx._targets.xla import Xla; print(Xla().version()); "
        "assert not {'jaxlib', 'jax'} & set(sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.startswith("0.") and said.stdout.split()[1] == "cpu"
    assert len(said.stdout.split()) == 4


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    pjrt.library.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'spmdx\[xla\]'"):
        xla.Xla().ops(["aten.mm"])


def test_a_program_that_ends_with_results_says_nothing():
    code = (
        "import torch; from spmdx._targets import pjrt; "
        f"run = pjrt.loaded(pjrt.compiled({unary('stablehlo.tanh', PLAIN)!r})); "
        "kept = run([torch.ones(4, 8)]); kept[0].add_(1)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")
