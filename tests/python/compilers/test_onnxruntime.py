# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's models: tensors in, new tensors out, on segments that are written by hand."""

import gc
import subprocess
import sys
import threading

import pytest
import torch
from spmdx._segments.segment import DTYPES, Op, Param, Segment, Type, Value
from spmdx._targets.onnxruntime import OnnxRuntime
from spmdx.compilers import NotTaken
from stablehlo_texts import SHAPES, odd, overlap, some

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def segment(inputs, ops, outputs, params=0):
    """Of types, and of ops with their names, arguments, and types of results."""
    made, free = [], len(inputs)
    types = dict(enumerate(inputs))
    for name, args, kinds in ops:
        made.append(Op(name, args, free, kinds))
        types.update({free + i: kind for i, kind in enumerate(kinds)})
        free += len(kinds)
    returned = tuple((number, types[number]) for number in outputs)
    return Segment("", tuple(enumerate(inputs)), params, tuple(made), returned)


def unary(name, kind):
    return segment([kind], [(name, (Value(0),), (kind,))], [1])


@pytest.fixture
def runs(tmp_path):
    def made(of):
        compiler = OnnxRuntime()
        compiler.compile(of, tmp_path)
        return compiler.load(of, tmp_path)

    return made


@pytest.fixture
def tanh(runs):
    return runs(unary("aten.tanh", Type("f32", (4, 8))))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_results_are_new_tensors_that_share_no_memory(shape, dtype, runs):
    kind, other = Type(NAMES[dtype], shape), Type(NAMES[dtype], (1, *shape))
    given = some(shape, dtype)
    kept = given.clone()
    ops = [
        ("aten.view", (Value(0), list(other.shape)), (other,)),
        ("aten.mul.Tensor", (Value(0), Value(0)), (kind,)),
        ("aten.view", (Value(2), list(other.shape)), (other,)),
    ]
    found = runs(segment([kind], ops, [0, 1, 2, 2, 3]))([given])
    square = given * given
    for mine, expected in zip(found, [given, given, square, square, square], strict=True):
        assert mine.dtype == dtype and mine.is_contiguous()
        assert torch.equal(mine.view(shape), expected)
    assert not overlap([given, *found])
    for each in found:
        each.zero_()
    assert torch.equal(given, kept)


@pytest.mark.parametrize("offset", [1, 3, 8, 15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
def test_inputs_may_begin_anywhere_in_memory(offset, dtype, runs):
    given = odd((4, 8), offset, dtype)
    kind = Type(NAMES[dtype], (4, 8))
    run = runs(segment([kind], [("aten.maximum", (Value(0), Value(0)), (kind,))], [1]))
    assert torch.equal(run([given])[0], given)


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


def test_constants_are_given_anew_each_time(runs):
    kind = Type("f32", (4, 8))
    run = runs(segment([], [("aten.full", ([4, 8], 1.5), (kind,))], [0]))
    run([])[0].zero_()
    assert (run([])[0] == 1.5).all()


def test_what_is_rounded_to_16_bits_is(runs):
    wide, narrow = Type("f32", (64,)), Type("bf16", (64,))
    ops = [
        ("prims.convert_element_type", (Value(0), torch.bfloat16), (narrow,)),
        ("prims.convert_element_type", (Value(1), torch.float32), (wide,)),
    ]
    given = torch.rand(64)
    (found,) = runs(segment([wide], ops, [2]))([given])
    assert torch.equal(found, given.bfloat16().float())


def test_numbers_that_change_are_read_anew(runs):
    kind = Type("f32", (4,))
    op = ("aten.add.Scalar", (Value(0), Param(0)), (kind,))
    run, given = runs(segment([kind], [op], [1], params=1)), torch.rand(4)
    for number in (0.5, -2.0):
        (found,) = run([given, torch.tensor(number, dtype=torch.float64)])
        torch.testing.assert_close(found, given + number)


def test_no_number_stays_none(runs):
    given = torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), 0.0, 2.0]])
    kind, row, place = Type("f32", (2, 3)), Type("f32", (2,)), Type("i64", (2,))
    ops = [
        ("aten.amax", (Value(0), [1]), (row,)),
        ("aten.argmax", (Value(0), 1), (place,)),
        ("aten.sort", (Value(0), 1, True), (kind, Type("i64", (2, 3)))),
        ("aten.maximum", (Value(0), Value(0)), (kind,)),
        ("aten.sign", (Value(0),), (kind,)),
    ]
    found = runs(segment([kind], ops, [1, 2, 3, 5, 6]))([given])
    expected = [given.amax(1), given.argmax(1), given.sort(1, True)[0], given, given.sign()]
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["aten.sum", "aten.prod", "aten.cumsum"])
def test_integers_are_whole(name, runs):
    given = torch.tensor([2**31 + 1, 2**31 - 1, 3])
    args = (Value(0), 0) if name == "aten.cumsum" else (Value(0),)
    shape = (3,) if name == "aten.cumsum" else ()
    of = segment([Type("i64", (3,))], [(name, args, (Type("i64", shape),))], [1])
    expected = getattr(torch.ops.aten, name.removeprefix("aten."))(given, *args[1:])
    assert torch.equal(runs(of)([given])[0], expected)


@pytest.mark.parametrize("name", ["aten.fmod.Tensor", "aten.remainder.Tensor"])
@pytest.mark.parametrize("by", [0, -1, 3])
def test_integers_are_divided_as_by_pytorch(name, by, runs):
    kind = Type("i64", (2,))
    run = runs(segment([kind, kind], [(name, (Value(0), Value(1)), (kind,))], [2]))
    given, divisor = torch.tensor([-7, torch.iinfo(torch.int64).min]), torch.tensor([by, by])
    if by == 0:
        with pytest.raises(IndexError, match="divided by zero"):
            run([given, divisor])
    else:
        packet = getattr(torch.ops.aten, name.split(".")[1]).Tensor
        assert torch.equal(run([given, divisor])[0], packet(given, divisor))


@pytest.mark.parametrize("index", [3, -1])
def test_places_that_are_not_there_are_an_error(index, runs):
    kinds = [Type("f32", (3,)), Type("i64", (1,))]
    run = runs(
        segment(kinds, [("aten.gather", (Value(0), 0, Value(1)), (Type("f32", (1,)),))], [2])
    )
    assert run([torch.arange(3.0), torch.tensor([2])])[0].item() == 2
    with pytest.raises(Exception, match="(?i)out of"):
        run([torch.arange(3.0), torch.tensor([index])])


def test_what_has_no_kernel_is_not_taken(tmp_path):
    with pytest.raises(NotTaken, match="1 op: aten.erf: .*no kernel of f64"):
        OnnxRuntime().compile(unary("aten.erf", Type("f64", (3,))), tmp_path)


def test_threads_run_one_model_at_once(tanh):
    wrong = []

    def work(number):
        for step in range(100):
            given = torch.full((4, 8), (number + step) / 100)
            if not torch.allclose(tanh([given])[0], given.tanh(), atol=1e-6):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_outlive_their_model(runs):
    kind = Type("f32", (256, 256))
    run = runs(segment([kind], [("aten.mm", (Value(0), Value(0)), (kind,))], [1]))
    given = torch.rand(256, 256)
    found = [run([given])[0] for _ in range(8)]
    del run
    gc.collect()
    torch.testing.assert_close(found[0], given @ given)


@pytest.mark.parametrize("damage", [lambda p: b"", lambda p: p[:99], lambda p: b"x" * 999])
def test_damaged_models_are_not_loaded(damage, tmp_path, runs):
    of = unary("aten.tanh", Type("f32", (4, 8)))
    runs(of)
    path = tmp_path / "segment.optimized.onnx"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Exception, match="INVALID|parse|Load model|ModelProto|FAIL"):
        OnnxRuntime().load(of, tmp_path)


def test_a_provider_that_is_not_there_says_what_to_install():
    with pytest.raises(ImportError, match="pip install onnxruntime-openvino"):
        OnnxRuntime("openvino").ops(["aten.mm"])
    with pytest.raises(ValueError, match="'tpu' is no provider. Expected one of cpu, openvino"):
        OnnxRuntime("tpu")


def test_a_provider_that_cannot_begin_is_refused_and_not_replaced(monkeypatch):
    import onnxruntime

    session = onnxruntime.InferenceSession  # leaves out what it cannot begin
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda model, options, providers, **_: session(model, options, providers=providers[-1:]),
    )
    named = ["OpenVINOExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: named)
    assert list(OnnxRuntime().ops(["aten.mm"])) == ["aten.mm"]
    with pytest.raises(RuntimeError, match="OpenVINOExecutionProvider cannot begin.*'FP8'"):
        OnnxRuntime("openvino", precision="FP8").ops(["aten.mm"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {"precision_mode": "must_keep_origin_dtype"}),
        (
            {"precision_mode": None, "precision_mode_v2": "origin", "device_id": 1},
            {"precision_mode_v2": "origin", "device_id": "1"},
        ),
    ],
)
def test_what_a_provider_is_told(options, told, monkeypatch):
    import onnxruntime

    asked = []

    def session(model, options, providers, **_):
        asked.append(providers)
        raise RuntimeError("no chip")

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    named = ["CANNExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: named)
    with pytest.raises(RuntimeError, match="no chip"):
        OnnxRuntime("cann", **options).ops(["aten.mm"])
    assert asked == [[("CANNExecutionProvider", told), ("CPUExecutionProvider", {})]]


def test_nothing_is_asked_to_be_greater():
    from spmdx._targets.onnx_graph import onnx_model

    kind, truth = Type("f32", (4,)), Type("b8", (4,))
    for name in ("aten.ge.Tensor", "aten.gt.Tensor"):  # of which OpenVINO says that NaN is
        of = segment([kind, kind], [(name, (Value(0), Value(1)), (truth,))], [2])
        nodes = {node.op_type for node in onnx_model(of, lambda alone: None).graph.node}
        assert nodes & {"Less", "LessOrEqual"} and not nodes & {"Greater", "GreaterOrEqual"}


def test_what_a_provider_is_wrong_in_is_left_to_pytorch():
    from spmdx._targets.onnx_graph import onnx_model

    def model(dtype):
        kind = Type(dtype, (5,))
        of = segment([kind, kind], [("aten.maximum", (Value(0), Value(1)), (kind,))], [2])
        return onnx_model(of, lambda alone: None, ["prims.maximum"])

    assert model("i64").graph.node
    with pytest.raises(NotTaken, match="other numbers than prims.maximum"):
        model("f32")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_it_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'spmdx\[onnxruntime\]'"):
        OnnxRuntime().ops(["aten.mm"])


def test_the_version_names_the_packages_and_imports_nothing():
    code = (
        "import sys, spmdx; from spmdx._targets.onnxruntime import OnnxRuntime; "
        "print(OnnxRuntime().version()); assert not {'onnx', 'onnxruntime'} & set(sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.startswith("1.") and len(said.stdout.split()) == 4
