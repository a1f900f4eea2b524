# SPDX-License-Identifier: Apache-2.0
"""The whole messages of ops that are refused: those of eager, and those that only spmdx has."""

import re

import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, grid, message_of


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
    ("masked_select", lambda d: torch.masked_select(zeros(d), zeros(d))),
]


@pytest.mark.parametrize("call", cases(SAME))
def test_the_message_is_that_of_eager(call):
    with pytest.raises((RuntimeError, IndexError)) as eager:
        call("cpu")
    assert message_of(eager.type, lambda: call("spmdx")) == str(eager.value)


LED = [
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


def cut(*shape):
    return spmdx.mark_sharding(device(*shape), grid(), ("i", None))


def ids(*shape):
    return torch.full(shape, 9).to("spmdx")


def dropped():
    return torch.native_dropout(device(2), 2, True)[0].cpu()


def planned(read):
    with spmdx.plan_only():
        x = device(2) + 1
    return read(x)


def planned_inside():
    with spmdx.plan_only():
        return (device(2) + 1).tolist()


LATE = [
    (
        "embedding",
        IndexError,
        lambda: torch.embedding(cut(8, 2), ids(1)).cpu(),
        "HERE: spmdx.masked_embedding: index out of range in self: embedding got indices from 9 "
        "to 9. Expected 0 to 7. Check the size that the indices point into.",
    ),
    (
        "gather",
        IndexError,
        lambda: torch.gather(cut(8, 2), 0, ids(2, 2)).cpu(),
        "HERE: spmdx.window: index out of range in self: gather got indices from 9 to 9. Expected"
        " 0 to 7. Check the size that the indices point into.",
    ),
    (
        "index",
        IndexError,
        lambda: cut(8, 2)[ids(1)].cpu(),
        "HERE: spmdx.window: index out of range in self: index.Tensor got indices from 9 to 9. "
        "Expected -8 to 7. Check the size that the indices point into.",
    ),
    (
        "normal",
        spmdx.ShardingError,
        lambda: torch.normal(0.0, -1, (3,), device="spmdx").cpu(),
        "HERE: spmdx.random.normal: normal got the standard deviation -1.000000. Expected a "
        "number that is not negative. Pass its absolute value.",
    ),
    (
        "dropout",
        spmdx.ShardingError,
        lambda: torch.native_dropout(device(2), 2, True)[0].cpu(),
        "HERE: spmdx.random.bernoulli: bernoulli got the probability -1.000000. Expected 0 <= p "
        "<= 1. Clamp it first.",
    ),
    (
        "planned",
        spmdx.ShardingError,
        lambda: planned(lambda x: x.tolist()),
        "HERE: the values of a tensor are wanted, but spmdx.plan_only() planned the step that "
        "makes them and did not run it. Expected only its shape, dtype and sharding to be used. "
        "Make the tensor again outside of plan_only(), or read spmdx.explain() and "
        "spmdx.get_sharding() instead.",
    ),
    (
        "planned_operand",
        spmdx.ShardingError,
        lambda: planned(lambda x: x + 1),
        "HERE: the values of a tensor are wanted, but spmdx.plan_only() planned the step that "
        "makes them and did not run it. Expected only its shape, dtype and sharding to be used. "
        "Make the tensor again outside of plan_only(), or read spmdx.explain() and "
        "spmdx.get_sharding() instead.",
    ),
    (
        "planned_inside",
        spmdx.ShardingError,
        planned_inside,
        "HERE: the values of a tensor are wanted, but spmdx.plan_only() planned the step that "
        "makes them and did not run it. Expected only its shape, dtype and sharding to be used. "
        "Make the tensor again outside of plan_only(), or read spmdx.explain() and "
        "spmdx.get_sharding() instead.",
    ),
]


@pytest.mark.parametrize("error, call, message", cases(LATE))
def test_what_is_found_when_values_are_wanted(error, call, message):
    assert message_of(error, call) == message
    assert (device(2) + 1).tolist() == [1.0, 1.0]  # and the next step runs


def test_what_a_failed_step_overwrote_says_so():
    w = device(4).add_(1)
    spmdx.sync(wait=True)
    w.index_add_(0, ids(1), device(1) + 1)
    with pytest.raises(IndexError, match="aten.index_add: index out of range in self") as caught:
        w.cpu()
    file, line = re.match(r"(\w+\.py):(\d+)", str(caught.value)).groups()
    for _ in range(2):
        assert message_of(RuntimeError, lambda: w.cpu()) == (
            f"the value of this tensor was lost in a step that failed ({file}:{line}: "
            "aten.index_add: index out of range in self). Expected one that was computed. Give it "
            "a new value, or make the tensor again."
        )
    assert (w.fill_(2)).tolist() == [2.0] * 4  # new values are as good as any


WAITS = {
    "sync": lambda: spmdx.sync(wait=True),
    "synchronize": torch.spmdx.synchronize,
    "accelerator": torch.accelerator.synchronize,
    "stream": lambda: torch.spmdx.current_stream().synchronize(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_an_error_is_told_once_and_undoes_one_step(wait):
    w = device(3)
    bad = device(8)[ids(9)]
    with pytest.raises(IndexError, match=r"^test_errors_of_ops.py:\d+: aten.index.Tensor: index 9"):
        spmdx.mark_step()
        wait()
    del bad
    w.add_(1)
    spmdx.mark_step()
    wait()
    assert w.tolist() == [1.0] * 3 and (device(2) + 1).tolist() == [1.0, 1.0]


def test_a_solver_that_fails_names_its_line():
    with pytest.raises(
        torch.linalg.LinAlgError, match=r"^test_errors_of_ops.py:\d+: aten.*positive"
    ):
        torch.linalg.cholesky(-torch.eye(3).to("spmdx"))


def test_two_meshes_are_named_with_the_lines_that_wrote_them():
    one, other = spmdx.Mesh(range(4), (4,), ("a",)), spmdx.Mesh(range(2), (2,), ("b",))
    x = spmdx.mark_sharding(device(8, 8), one, ("a", None))
    y = spmdx.mark_sharding(device(8, 8), other, ("b", None))
    with pytest.raises(spmdx.ShardingError) as caught:
        (x + y).tolist()
    assert re.fullmatch(
        r"(F:\d+): one step uses tensors of two meshes, Mesh\(a=4\) \(annotated at F:\d+\) and "
        r"Mesh\(b=2\) \(annotated at F:\d+\)\. Expected one mesh for all that is computed "
        r"together\. Annotate all of it on one of them: call mark_sharding with that mesh\.",
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
