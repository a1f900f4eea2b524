# SPDX-License-Identifier: Apache-2.0
"""The whole messages of ops that are refused: those of eager, and those that only spmdx has."""

import re

import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, message_of


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def zeros(place, *shape, dtype=None):
    return torch.zeros(*(shape or (3,)), device=place, dtype=dtype)


def flags(place, *shape):
    return torch.ones(*shape, dtype=torch.bool, device=place)


SAME = [
    ("random_", lambda d: zeros(d).random_(3, 2)),
    ("randint", lambda d: torch.randint(3, 2, (3,), device=d)),
    ("randint_like", lambda d: torch.randint_like(zeros(d), 3, 2)),
    ("uniform_", lambda d: zeros(d).uniform_(2, 1)),
    ("normal_", lambda d: zeros(d).normal_(0, -1)),
    ("exponential_", lambda d: zeros(d).exponential_(0)),
    ("bernoulli_", lambda d: zeros(d).bernoulli_(2)),
    ("bernoulli_p", lambda d: torch.bernoulli(zeros(d), 2)),
    ("fill_", lambda d: zeros(d).fill_(zeros(d))),
    ("mask", lambda d: zeros(d)[flags(d, 2)]),
    ("multinomial", lambda d: torch.multinomial(zeros(d) + 1, 4)),
    ("multinomial_rows", lambda d: torch.multinomial(zeros(d, 2, 3) + 1, 4)),
    ("multinomial_none", lambda d: torch.multinomial(zeros(d) + 1, 0, True)),
    ("multinomial_dims", lambda d: torch.multinomial(zeros(d, 1, 2, 3), 1)),
    ("multinomial_dtype", lambda d: torch.multinomial(zeros(d, dtype=torch.int64), 1)),
    ("as_strided_offset", lambda d: zeros(d).as_strided((2,), (1,), -1)),
    ("masked_select", lambda d: torch.masked_select(zeros(d), zeros(d))),
]


@pytest.mark.parametrize("call", cases(SAME))
def test_the_message_is_that_of_eager(call):
    with pytest.raises((RuntimeError, IndexError)) as eager:
        call("cpu")
    assert message_of(eager.type, lambda: call("spmdx")) == str(eager.value)


LED = [
    (
        "multinomial_out",
        "multinomial.out",
        lambda d: torch.multinomial(zeros(d), 4, out=zeros(d, dtype=torch.int64)),
    ),
    ("cast", "add_.Tensor", lambda d: zeros(d, 2, dtype=torch.int64).add_(0.5)),
    ("broadcast", "add_.Tensor", lambda d: zeros(d, 2).add_(zeros(d, 3, 2))),
    ("normal", "normal.Tensor_float", lambda d: torch.normal(zeros(d), -1.0)),
    ("normal_stds", "normal.float_Tensor", lambda d: torch.normal(0.0, zeros(d) - 1).cpu()),
    ("bernoulli", "bernoulli", lambda d: torch.bernoulli(zeros(d) + 2).cpu()),
]


@pytest.mark.parametrize("op, call", cases(LED))
def test_the_message_of_eager_follows_the_line_and_the_op(op, call):
    with pytest.raises(RuntimeError) as eager:
        call("cpu")
    assert message_of(RuntimeError, lambda: call("spmdx")) == f"HERE: aten.{op}: {eager.value}"


OUT_OF_RANGE = [
    ("softmax", "_softmax", lambda x: x.softmax(2)),
    ("log_softmax", "_log_softmax", lambda x: x.log_softmax(-3)),
    ("sort", "sort", lambda x: x.sort(dim=2).values),
    ("stable_sort", "sort.stable", lambda x: x.sort(dim=2, stable=True).values),
    ("cumsum", "cumsum", lambda x: x.cumsum(2)),
    ("index_reduce", "index_reduce", lambda x: x.index_reduce(2, x[0].long(), x, "amax")),
    ("select_scatter", "select_scatter", lambda x: x.select_scatter(x, 2, 0)),
    ("slice_scatter", "slice_scatter", lambda x: x.slice_scatter(x, 2)),
]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("op, call", cases(OUT_OF_RANGE))
def test_a_dim_that_is_not_there_is_refused_as_in_eager(op, call, count):
    with pytest.raises(IndexError) as eager:
        call(zeros("cpu", 4, 4))
    x = zeros("spmdx", 4, 4)
    spmdx.mark_sharding(x, spmdx.Mesh(range(count), (count,), ("data",)), ("data", None))
    said = message_of(IndexError, lambda: call(x).cpu())
    assert said.removeprefix(f"HERE: aten.{op}: ") == str(eager.value)
    assert x.sum().item() == 0  # the program goes on


def rand(place):
    other = "cpu" if place == "spmdx" else "spmdx"
    return torch.rand(2, device=place, generator=torch.Generator(other))


def entropy():
    with torch.autocast("spmdx", dtype=torch.bfloat16):
        return torch.nn.functional.binary_cross_entropy(device(2), device(2))


def other_bytes():
    """The storage of a tensor with room between its rows, seen as another dtype."""
    apart = torch.empty_strided((2, 2), (3, 1), device="spmdx")
    return device(2, dtype=torch.int32).set_(apart.untyped_storage())


def state(*shape, dtype):
    return torch.Generator("spmdx").set_state(torch.zeros(*shape, dtype=dtype))


OWN = [
    (
        "zeros",
        RuntimeError,
        lambda: zeros("spmdx", 2, -1),
        "Trying to create tensor with negative dimension -1",
    ),
    (
        "full",
        RuntimeError,
        lambda: torch.full((2, -1), 1.0, device="spmdx"),
        "Trying to create tensor with negative dimension -1",
    ),
    (
        "empty",
        RuntimeError,
        lambda: torch.empty(2, -1, device="spmdx"),
        "Trying to create tensor with negative dimension -1",
    ),
    (
        "randperm",
        RuntimeError,
        lambda: torch.randperm(-1, device="spmdx"),
        "n must be non-negative, got -1",
    ),
    (
        "foreign_generator",
        RuntimeError,
        lambda: rand("spmdx"),
        "Expected a 'spmdx' device type for generator but found 'cpu'",
    ),
    (
        "generator_bytes",
        RuntimeError,
        lambda: state(3, dtype=torch.uint8),
        "set_state: the tensor is no state of an spmdx generator. Expected 16 bytes on the CPU. "
        "Pass what get_state() returned.",
    ),
    (
        "generator_dtype",
        RuntimeError,
        lambda: state(16, dtype=torch.float32),
        "set_state: the tensor is no state of an spmdx generator. Expected 16 bytes on the CPU. "
        "Pass what get_state() returned.",
    ),
    (
        "negative_stride",
        RuntimeError,
        lambda: device(3).as_strided((2,), (-1,), 2),
        "as_strided: Negative strides are not supported",
    ),
    (
        "too_large_view",
        RuntimeError,
        lambda: device(3).as_strided((4,), (1,)),
        "setStorage: sizes [4], strides [1], storage offset 0 require a storage size of 16 which "
        "is out of bounds for storage of size 12",
    ),
    (
        "set_to_cpu",
        RuntimeError,
        lambda: device(2).set_(torch.zeros(2)),
        "set_: the source is not on spmdx. Move it with .to('spmdx') first.",
    ),
    (
        "set_cpu_bytes",
        RuntimeError,
        lambda: device(2).set_(torch.zeros(2).untyped_storage()),
        "set_: the storage is not one of spmdx. Pass untyped_storage() of an spmdx tensor.",
    ),
    (
        "other_bytes",
        RuntimeError,
        other_bytes,
        "the storage of a tensor with holes or repeats cannot be seen as another dtype. Use "
        ".contiguous() first.",
    ),
    (
        "second_device",
        RuntimeError,
        lambda: torch.accelerator.set_device_index(1),
        "there is one logical spmdx device, spmdx:0, not spmdx:1. The devices of the mesh lie "
        "below it.",
    ),
    (
        "dtype",
        spmdx.ShardingError,
        lambda: zeros("spmdx", dtype=torch.float8_e8m0fnu),
        "spmdx cannot hold tensors of dtype Float8_e8m0fnu. Expected a floating, complex, integer"
        " or bool dtype. Convert the tensor first.",
    ),
    (
        "autocast",
        RuntimeError,
        entropy,
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. "
        "Use binary_cross_entropy_with_logits, or turn autocast off around them.",
    ),
]


@pytest.mark.parametrize("error, call, message", cases(OWN))
def test_what_only_spmdx_refuses(error, call, message):
    assert message_of(error, call) == message


def test_two_meshes_are_named_with_the_lines_that_wrote_them():
    one, other = spmdx.Mesh(range(4), (4,), ("a",)), spmdx.Mesh(range(2), (2,), ("b",))
    x = spmdx.mark_sharding(device(8, 8), one, ("a", None))
    y = spmdx.mark_sharding(device(8, 8), other, ("b", None))
    with pytest.raises(spmdx.ShardingError) as caught:
        (x + y).tolist()
    assert re.fullmatch(
        r"(F:\d+): one step uses tensors of two meshes, Mesh\(a=4\) \(annotated at F:\d+\) and "
        r"Mesh\(b=2\) \(annotated at F:\d+\)\. Expected one mesh for all that is computed "
        r"together\. Annotate all of it on one of them: call spmdx\.mark_sharding, or "
        r"spmdx\.nn\.pipeline for a model of stages, with that mesh\.",
        str(caught.value).replace("test_errors_of_ops.py", "F"),
    )


@pytest.fixture(scope="module")
def ops():
    """Ops of a user whose arguments are of kinds that few ops of torch have."""
    library = torch.library.Library("spmdx_errors", "DEF")
    for name, kind in (("named", "str[]"), ("complexes", "complex[]"), ("stored", "Storage")):
        library.define(f"{name}(Tensor x, {kind} other) -> Tensor")
        for key in ("CPU", "Meta"):
            library.impl(name, lambda x, other: x.clone(), key)
    yield torch.ops.spmdx_errors
    library._destroy()


LISTS = [("named", ["a"], "String"), ("complexes", [1j], "ComplexDouble")]


@pytest.mark.parametrize("op, argument, kind", cases([(row[0], *row) for row in LISTS]))
def test_a_list_that_a_graph_cannot_hold_is_refused(ops, op, argument, kind):
    text = message_of(spmdx.ShardingError, lambda: getattr(ops, op)(device(2), argument))
    assert text == (
        f"HERE: spmdx_errors.{op}: an argument is a list of {kind}, which a graph cannot hold. "
        "Expected ints, floats or bools."
    )


def test_an_argument_of_another_kind_is_refused(ops):
    storage = torch.zeros(2).untyped_storage()
    assert message_of(spmdx.ShardingError, lambda: ops.stored(device(2), storage)) == (
        "HERE: spmdx_errors.stored: an argument of kind Storage cannot be traced. Expected "
        "numbers, lists of numbers, strings and tensors. Move the tensors to the CPU for this op."
    )


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_ends_a_program_passes_a_meta_kernel_of_python_and_other_errors_leave_it_to_the_cpu(
    raised,
):
    library = torch.library.Library("errors_of_meta", "FRAGMENT")
    name = f"raises_{raised.__name__.lower()}"

    def meta(x):
        raise raised

    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x + 1, "CPU")
    library.impl(name, meta, "Meta")
    op = getattr(torch.ops.errors_of_meta, name)
    if issubclass(raised, Exception):
        assert op(torch.ones(3).to("spmdx")).tolist() == [2.0] * 3
    else:
        with pytest.raises(raised):
            op(torch.ones(3).to("spmdx"))
    assert (torch.ones(2).to("spmdx") + 1).tolist() == [2.0] * 2
    spmdx.sync(wait=True)
