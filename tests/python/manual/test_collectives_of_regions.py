# SPDX-License-Identifier: Apache-2.0
"""Each collective of a manual region, against lists of local tensors: numbers, and bytes."""

import itertools

import pytest
import spmdx
import torch
from messages import eight_devices
from regions import SIZES, check, grid, kinds, line_of, numbers, ring
from spmdx import collectives as comm


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def summed(parts):
    return [sum(parts)] * len(parts)


def averaged(parts):
    return [sum(parts) / len(parts)] * len(parts)


def highest(parts):
    return [torch.stack(parts).amax(0)] * len(parts)


def lowest(parts):
    return [torch.stack(parts).amin(0)] * len(parts)


def gathered(dim):
    return lambda parts: [torch.cat(parts, dim)] * len(parts)


def scattered(dim):
    return lambda parts: list(sum(parts).chunk(len(parts), dim))


def exchanged(split, concat):
    def run(parts):
        pieces = [part.chunk(len(parts), split) for part in parts]
        return [torch.cat([p[i] for p in pieces], concat) for i in range(len(parts))]

    return run


def turned(parts):
    return [parts[i - 1] for i in range(len(parts))]


CASES = {
    "sum": (lambda x, n: comm.all_reduce(x, "i"), summed),
    "mean": (lambda x, n: comm.all_reduce(x, "i", op="mean"), averaged),
    "max": (lambda x, n: comm.all_reduce(x, "i", op="max"), highest),
    "min": (lambda x, n: comm.all_reduce(x, "i", op="min"), lowest),
    "gather 0": (lambda x, n: comm.all_gather(x, "i"), gathered(0)),
    "gather -1": (lambda x, n: comm.all_gather(x, "i", dim=-1), gathered(-1)),
    "scatter 0": (lambda x, n: comm.reduce_scatter(x, "i"), scattered(0)),
    "scatter 1": (lambda x, n: comm.reduce_scatter(x, "i", dim=1), scattered(1)),
    "exchange": (lambda x, n: comm.all_to_all(x, "i", 1, 0), exchanged(1, 0)),
    "exchange 0": (lambda x, n: comm.all_to_all(x, "i", 0, 0), exchanged(0, 0)),
    "turn": (lambda x, n: comm.permute(x, "i", ring(n)), turned),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_a_collective_equals_what_it_means_for_a_list_of_devices(name, size):
    collective, meaning = CASES[name]
    mesh = line_of(size)

    def local(x):
        return collective(x * x, size) * (comm.axis_index("i") + 1)

    def reference(x):
        parts = meaning([part * part for part in x.chunk(size)])
        return torch.cat([part * (i + 1) for i, part in enumerate(parts)])

    run = spmdx.shard_map(local, mesh, (("i", None),), ("i", None))
    check(run, reference, numbers(size * size, 2 * size))


def wire(kind, rows, size):
    """Bytes a device receives for local tensors of so many rows of 2·size floats."""
    local = rows * 2 * size * 4
    return {
        "all_reduce": 2 * local * (size - 1) // size,
        "all_gather": local * (size - 1),
        "reduce_scatter": local * (size - 1) // size,
        "all_to_all": local * (size - 1) // size,
    }[kind]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "name, forward, backward",
    [
        ("sum", "all_reduce", "all_reduce"),
        ("mean", "all_reduce", "all_reduce"),
        ("gather 0", "all_gather", "reduce_scatter"),
        ("gather -1", "all_gather", "reduce_scatter"),
        ("scatter 0", "reduce_scatter", "all_gather"),
        ("exchange", "all_to_all", "all_to_all"),
    ],
)
def test_what_crosses_the_wire_is_the_collective_that_was_written(name, forward, backward, size):
    mesh = line_of(size)
    x = spmdx.mark_sharding(numbers(size * size, 2 * size).to("spmdx"), mesh, ("i", None))
    x.requires_grad_()
    spmdx.mark_step()
    collective = CASES[name][0]

    def local(x):
        return collective(x * x, size) * (comm.axis_index("i") + 1)

    y = spmdx.shard_map(local, mesh, (("i", None),), ("i", None))(x)
    assert kinds(spmdx.explain(y)) == [(forward, wire(forward, size, size))]
    grads = spmdx.mark_sharding(torch.ones(y.shape).to("spmdx"), mesh, ("i", None))
    spmdx.mark_step()
    y.backward(grads)
    rows = 1 if name == "scatter 0" else size * size if backward == "reduce_scatter" else size
    assert kinds(spmdx.explain(x.grad)) == [(backward, wire(backward, rows, size))]


@pytest.mark.parametrize("rows, columns", [(2, 2), (4, 2), (2, 3)])
def test_axes_are_major_first_and_can_be_reduced_together(rows, columns):
    mesh = grid(rows, columns)
    n = rows * columns

    def local(x):
        whole = comm.all_gather(x, ("i", "j"))
        share = comm.reduce_scatter(whole * (comm.axis_index("i") + 1), ("i", "j"))
        return share + comm.all_reduce(x.sum(), ("i", "j")) + comm.all_reduce(x.mean(), "j")

    def reference(x):
        factor = columns * sum(range(1, rows + 1))
        blocks = x.reshape(rows, -1)
        means = torch.stack(
            [b.chunk(columns)[0].new_tensor(0) + b.mean() * columns for b in blocks]
        )
        return x * factor + x.sum() + means.repeat_interleave(x.numel() // rows)

    run = spmdx.shard_map(local, mesh, ((("i", "j"),),), (("i", "j"),))
    check(run, reference, numbers(2 * n))


def test_a_ring_of_permutes_sums_what_an_all_reduce_sums():
    size = 4
    mesh = line_of(size)

    def local(x):
        total = moving = x
        for _ in range(size - 1):
            moving = comm.permute(moving, "i", ring(size))
            total = total + moving
        return total

    run = spmdx.shard_map(local, mesh, (("i", None),), ("i", None))
    check(run, lambda x: sum(x.chunk(size)).repeat(size, 1), numbers(8, 3))


@pytest.mark.parametrize("size", SIZES)
def test_a_permute_moves_each_part_once_forward_and_backward(size):
    mesh = line_of(size)
    x = spmdx.mark_sharding(numbers(2 * size, 3).to("spmdx"), mesh, ("i", None)).requires_grad_()
    spmdx.mark_step()

    def local(x):
        return comm.permute(x * x, "i", ring(size)) * 2

    y = spmdx.shard_map(local, mesh, (("i", None),), ("i", None))(x)
    (sent,) = spmdx.explain(y).collectives
    assert (sent.kind, sent.axes, sent.bytes) == ("collective_permute", ("i",), 2 * 3 * 4)
    assert sent.cause == (
        f"parts of dim 0 of f32[{size}@i, 2, 3] go from device to device in spmdx.permute_rows"
    )
    y.backward(spmdx.mark_sharding(torch.ones(2 * size, 3).to("spmdx"), mesh, ("i", None)))
    spmdx.mark_step()
    assert [c.kind for c in spmdx.explain().collectives] == ["collective_permute"] * 2
    assert torch.allclose(x.grad.cpu(), 4 * x.detach().cpu())


@pytest.mark.parametrize("axes", [("i",), ("j",), ("i", "j")])
def test_a_permute_on_a_grid_is_the_same_whatever_is_manual(axes):
    def local(x):
        return comm.permute(x, axes[0], [(0, 1)])

    spec = tuple(axis if axis in axes else None for axis in ("i", "j"))
    run = spmdx.shard_map(local, grid(2, 3), (spec,), spec, axes=axes)
    dim, parts = (0, 2) if axes[0] == "i" else (1, 3)

    def reference(x):
        first, *others = x.chunk(parts, dim)
        zeros = [torch.zeros_like(part) for part in others]
        return torch.cat([zeros[0], first, *zeros[1:]], dim)

    check(run, reference, numbers(4, 6))


def test_who_is_sent_nothing_has_zeros():
    run = spmdx.shard_map(
        lambda x: comm.permute(x, "i", [(0, 2), (3, 0)]), line_of(4), (("i",),), ("i",)
    )
    x = torch.arange(1.0, 9.0)
    check(run, lambda x: torch.cat([x[6:], x.new_zeros(2), x[:2], x.new_zeros(2)]), x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bfloat16, torch.float64])
def test_a_sum_keeps_its_dtype(dtype):
    run = spmdx.shard_map(lambda x: comm.all_reduce(x, "i"), line_of(4), (("i",),), (None,))
    result = run(torch.arange(8).to(dtype).to("spmdx"))
    assert result.dtype == dtype and result.cpu().tolist() == [12, 16]


def test_bools_have_a_maximum():
    run = spmdx.shard_map(
        lambda x: comm.all_reduce(x, "i", op="max"), line_of(2), (("i",),), (None,)
    )
    assert run(torch.tensor([True, False, False, False]).to("spmdx")).tolist() == [True, False]


def test_a_sum_of_what_does_not_vary_counts_every_device():
    def local(x, y):
        return comm.all_reduce(y, "i") + comm.all_reduce(y, "i", op="mean") + x.sum() * 0

    mesh = line_of(4)
    f = spmdx.shard_map(
        lambda x, y: comm.all_reduce(local(x, y), "i", op="max"), mesh, (("i",), None), (None,)
    )
    check(f, lambda x, y: 5 * y + x.sum() * 0, numbers(8), numbers(3))


def test_copies_can_be_kept_one_behind_the_other():
    run = spmdx.shard_map(lambda x: x * 2, line_of(3), (None,), ("i",))
    check(run, lambda x: (x * 2).repeat(3), numbers(2))


def test_what_does_not_vary_can_be_gathered_scattered_exchanged_and_sent():
    def local(x):
        whole = comm.all_gather(x, "i").sum()
        part = comm.reduce_scatter(x, "i")
        other = comm.all_to_all(x, "i", 0, 0)
        sent = comm.permute(x, "i", [(0, 1)])
        return torch.cat([part, other, sent]) * whole

    def reference(x):
        whole = 2 * x.sum()
        a, b = x.chunk(2)
        first = torch.cat([2 * a, a, a, torch.zeros_like(x)])
        return torch.cat([first, torch.cat([2 * b, b, b, x])]) * whole

    check(spmdx.shard_map(local, line_of(2), (None,), ("i",)), reference, numbers(4))


def test_the_cases_cover_every_public_collective():
    called = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"}
    assert called | {"axis_index", "axis_size"} == set(comm.__all__)
    assert len(list(itertools.product(CASES, SIZES))) == 44
