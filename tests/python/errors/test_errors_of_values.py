# SPDX-License-Identifier: Apache-2.0
"""The whole messages of what is found in the values of a step: it is told once, and undone."""

import re

import pytest
import spmdx
import torch
from hardware import ON_GPU, WRONG_INDICES
from messages import cases, device, eight_devices, grid, message_of


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


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
        return (torch.rand(2, device="spmdx") + 1).tolist()


def large_constant():
    with spmdx.plan_only():
        return torch.ones(10**9, device="spmdx").sum().item()


def assumed(value, n=None):
    n = device(2) if n is None else n
    with spmdx.plan_only():
        return spmdx.assume(n, value)


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
        "Say what it holds with spmdx.assume(), or make the tensor again outside of plan_only().",
    ),
    (
        "large_constant",
        spmdx.ShardingError,
        large_constant,
        "HERE: the values of a tensor are wanted that is computed from a constant of 4000000000 "
        "bytes. Expected 268435456 bytes at most within spmdx.plan_only(). Say what the tensor "
        "holds with spmdx.assume(), or make the constant smaller.",
    ),
    (
        "assumed_outside",
        spmdx.ShardingError,
        lambda: spmdx.assume(device(2), [1, 2]),
        "HERE: assume: a value is assumed outside of plan_only, where steps run. Expected a block "
        "of spmdx.plan_only(), in which there are no values. Call it inside of one, or read the "
        "value that the tensor has.",
    ),
    (
        "assumed_shape",
        spmdx.ShardingError,
        lambda: assumed(1),
        "HERE: assume: the value has the shape (), and n has (2,). Expected the shape of n. Write "
        "a list or a CPU tensor of this shape, for one value everywhere torch.full.",
    ),
    (
        "assumed_dtype",
        spmdx.ShardingError,
        lambda: assumed([0.5, 1], device(2, dtype=torch.int64)),
        "HERE: assume: the value is of torch.float64, and n of torch.int64 cannot hold it. "
        "Expected values of torch.int64. Convert them first.",
    ),
    (
        "assumed_number",
        spmdx.ShardingError,
        lambda: assumed([0, 300], device(2, dtype=torch.uint8)),
        "HERE: assume: the value is of torch.int64, and n of torch.uint8 cannot hold it. "
        "Expected values of torch.uint8. Convert them first.",
    ),
    (
        "assumed_word",
        spmdx.ShardingError,
        lambda: assumed("two"),
        "HERE: assume: the value is 'two'. Expected a number, a bool, a list of them or a CPU "
        "tensor. Write what n would hold, as 3 or [True, False].",
    ),
    (
        "assumed_on_the_device",
        spmdx.ShardingError,
        lambda: assumed(device(2)),
        "HERE: assume: the value is a tensor on spmdx:0. Expected a number, a bool, a list of them "
        "or a CPU tensor. Write what n would hold, as 3 or [True, False].",
    ),
    (
        "assumed_of_the_host",
        spmdx.ShardingError,
        lambda: assumed(1, torch.zeros(())),
        "HERE: assume: n is on device 'cpu'. Expected a tensor on device 'spmdx'. Move it there "
        'first: n = n.to("spmdx").',
    ),
]


@pytest.mark.parametrize("error, call, message", cases(LATE))
def test_what_is_found_when_values_are_wanted(error, call, message):
    if ON_GPU and error is IndexError:
        pytest.skip(WRONG_INDICES)
    assert message_of(error, call) == message
    assert (device(2) + 1).tolist() == [1.0, 1.0]  # and the next step runs


@pytest.mark.on_the_cpu(WRONG_INDICES)
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
@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_an_error_is_told_once_and_undoes_one_step(wait):
    w = device(3)
    bad = device(8)[ids(9)]
    with pytest.raises(
        IndexError, match=r"^test_errors_of_values.py:\d+: aten.index.Tensor: index 9"
    ):
        spmdx.mark_step()
        wait()
    del bad
    w.add_(1)
    spmdx.mark_step()
    wait()
    assert w.tolist() == [1.0] * 3 and (device(2) + 1).tolist() == [1.0, 1.0]


def test_a_solver_that_fails_names_its_line():
    with pytest.raises(
        torch.linalg.LinAlgError, match=r"^test_errors_of_values.py:\d+: aten.*positive"
    ):
        torch.linalg.cholesky(-torch.eye(3).to("spmdx"))
