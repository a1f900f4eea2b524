# SPDX-License-Identifier: Apache-2.0
"""A manual region computes what a list of single devices would, forward and backward."""

import inspect
import itertools
import math
import os

import pytest
import spmdx
import torch
from spmdx import collectives as comm

FILE = os.path.basename(__file__)
SIZES = [2, 3, 4, 8]


@pytest.fixture(scope="module", autouse=True)
def devices():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)


def line_of(size):
    return spmdx.Mesh(range(size), (size,), ("i",))


def grid(rows, columns):
    return spmdx.Mesh(range(rows * columns), (rows, columns), ("i", "j"))


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def device(tensor):
    return tensor.detach().to("spmdx").requires_grad_(tensor.requires_grad)


def kinds(report):
    return sorted((c.kind, c.bytes) for c in report.collectives)


def check(run, reference, *tensors):
    """Results and gradients of ``run`` on the device equal those of ``reference`` on the CPU.

    Gives the reports of the forward pass and of the backward pass.
    """
    host = [t.clone().requires_grad_(t.dtype.is_floating_point) for t in tensors]
    ours = [device(t) for t in host]
    expected, result = reference(*host), run(*ours)
    weight = numbers(*expected.shape, seed=9)
    forward = spmdx.explain(result)
    torch.testing.assert_close(result.cpu(), expected.detach(), atol=1e-5, rtol=1e-5)
    (expected * weight).sum().backward()
    (result * weight.to("spmdx")).sum().backward()
    spmdx.mark_step()
    backward = spmdx.explain()
    for t, h in zip(ours, host, strict=True):
        torch.testing.assert_close(t.grad.cpu(), h.grad, atol=1e-5, rtol=1e-5)
    return forward, backward


# ---- each collective, against lists of local tensors ---------------------------------------------


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


def ring(size):
    return [(i, (i + 1) % size) for i in range(size)]


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


# ---- values that do not vary ---------------------------------------------------------------------


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


# ---- whole programs ------------------------------------------------------------------------------


def megatron(x, w1, b1, w2):
    return comm.all_reduce(torch.relu(x @ w1 + b1) @ w2, "j")


SPECS = (("i", None), (None, "j"), ("j",), ("j", None))


@pytest.mark.parametrize("rows, columns", [(1, 2), (2, 2), (4, 2), (2, 3), (1, 8)])
def test_a_layer_cut_by_hand_equals_the_layer(rows, columns):
    run = spmdx.shard_map(megatron, grid(rows, columns), SPECS, ("i", None))
    tensors = numbers(8, 6), numbers(6, 24, seed=1), numbers(24, seed=2), numbers(24, 5, seed=3)
    check(run, lambda x, w1, b1, w2: torch.relu(x @ w1 + b1) @ w2, *tensors)


def test_a_layer_cut_by_hand_moves_what_megatron_moves():
    mesh = grid(4, 2)
    shapes = [(8, 6), (6, 24), (24,), (24, 5)]
    tensors = [
        spmdx.mark_sharding(numbers(*s).to("spmdx"), mesh, p)
        for s, p in zip(shapes, SPECS, strict=True)
    ]
    for tensor in tensors:
        tensor.requires_grad_()
    spmdx.mark_step()
    y = spmdx.shard_map(megatron, mesh, SPECS, ("i", None))(*tensors)
    assert kinds(spmdx.explain(y)) == [("all_reduce", 2 * 2 * 5 * 4 // 2)]
    y.sum().backward()
    spmdx.mark_step()
    over = [c.axes for c in spmdx.explain().collectives]
    assert sorted(over) == [("i",), ("j",), ("j",)]  # one bucket of gradients; forward; input


class Captured(torch.nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 24), torch.nn.Linear(24, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.mesh = mesh

    def inside(self, x, w, second):
        hidden = torch.nn.functional.gelu(x @ w.T + self.first.bias.mean())
        return self.norm(x + comm.all_reduce(hidden @ second.T, "j") + self.second.bias)

    def forward(self, x):
        if self.mesh is None:
            hidden = torch.nn.functional.gelu(x @ self.first.weight.T + self.first.bias.mean())
            return self.norm(x + hidden @ self.second.weight.T + self.second.bias)
        specs = (("i", None), ("j", None), (None, "j"))
        run = spmdx.shard_map(self.inside, self.mesh, specs, ("i", None))
        return run(x, self.first.weight, self.second.weight)


def train(model, data, place):
    model = place(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(4):
        x = place(data[step])
        loss = (model(model(x)) - x.roll(1, 0)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("rows, columns", [(2, 1), (1, 3), (2, 2), (4, 2)])
def test_a_model_with_regions_trains_as_the_plain_model(rows, columns):
    torch.manual_seed(0)
    plain, cut = Captured(None), Captured(grid(rows, columns))
    cut.load_state_dict(plain.state_dict())
    data = numbers(4, 8, 6)
    expected = train(plain, data, lambda t: t)
    found = train(cut, data, lambda t: t.to("spmdx"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for a, b in zip(cut.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b, atol=1e-4, rtol=1e-4)


def test_a_region_can_be_recomputed_by_a_checkpoint():
    mesh = grid(2, 2)
    run = spmdx.shard_map(megatron, mesh, SPECS, ("i", None))

    def recomputed(*tensors):
        return torch.utils.checkpoint.checkpoint(run, *tensors, use_reentrant=False)

    tensors = numbers(8, 6), numbers(6, 24, seed=1), numbers(24, seed=2), numbers(24, 5, seed=3)
    check(recomputed, lambda x, w1, b1, w2: torch.relu(x @ w1 + b1) @ w2, *tensors)


@pytest.mark.parametrize("size", SIZES)
def test_a_table_cut_by_rows_is_looked_up_where_its_rows_are(size):
    """Megatron's vocabulary-parallel embedding: one sum of rows forward, none backward."""
    mesh = line_of(size)

    def local(indices, table):
        own = indices - comm.axis_index("i") * table.shape[0]
        here = (own >= 0) & (own < table.shape[0])
        rows = torch.nn.functional.embedding(own.clamp(0, table.shape[0] - 1), table)
        return comm.all_reduce(rows * here[..., None], "i")

    host = numbers(24, 5).requires_grad_()
    table = spmdx.mark_sharding(host.detach().to("spmdx"), mesh, ("i", None)).requires_grad_()
    indices = torch.randint(0, 24, (4, 3), generator=torch.Generator().manual_seed(1))
    ours = indices.to("spmdx")
    spmdx.mark_step()
    y = spmdx.shard_map(local, mesh, (None, ("i", None)), (None, None, None))(ours, table)
    bytes_of_rows = 4 * 3 * 5 * 4
    assert kinds(spmdx.explain(y)) == [("all_reduce", 2 * bytes_of_rows * (size - 1) // size)]
    expected = torch.nn.functional.embedding(indices, host)
    torch.testing.assert_close(y.cpu(), expected.detach())
    expected.sum().backward()
    y.sum().backward()
    spmdx.mark_step()
    assert not spmdx.explain().collectives
    torch.testing.assert_close(table.grad.cpu(), host.grad)


def test_attention_by_all_to_all_equals_attention():
    """DeepSpeed-Ulysses: a cut sequence becomes cut heads and back."""
    mesh = line_of(4)

    def local(q, k, v):
        heads = [comm.all_to_all(t, "i", split_dim=1, concat_dim=2) for t in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return comm.all_to_all(out, "i", split_dim=2, concat_dim=1)

    def reference(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    spec = (None, None, "i", None)
    run = spmdx.shard_map(local, mesh, (spec,) * 3, spec)
    forward, _ = check(run, reference, *(numbers(2, 4, 8, 5, seed=s) for s in range(3)))
    assert forward.count("all_to_all") == sum(c.count for c in forward.collectives)


def test_ring_attention_equals_attention():
    """Keys and values go round; partial results are merged by their logsumexp."""
    size = 4
    mesh = line_of(size)

    def local(q, k, v):
        top = torch.full(q.shape[:-1], -math.inf, device="spmdx")
        total, out = torch.zeros(q.shape[:-1], device="spmdx"), torch.zeros_like(q)
        for _ in range(size):
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            now = torch.maximum(top, scores.amax(-1))
            weights, scale = (scores - now[..., None]).exp(), (top - now).exp()
            total = total * scale + weights.sum(-1)
            out = out * scale[..., None] + weights @ v
            top = now
            k, v = comm.permute(k, "i", ring(size)), comm.permute(v, "i", ring(size))
        return out / total[..., None]

    spec = (None, "i", None)
    run = spmdx.shard_map(local, mesh, (spec,) * 3, spec)
    attention = torch.nn.functional.scaled_dot_product_attention
    check(run, attention, *(numbers(2, 12, 5, seed=s) for s in range(3)))


# ---- structures, nesting, axes left to the planner -----------------------------------------------


def test_lists_and_dicts_of_tensors_go_in_and_out():
    def local(batch, weights, scale, note):
        assert note == "as it is" and batch["x"].shape == (2, 3)
        total = comm.all_reduce(batch["x"].sum(), "i") * weights[0] + batch["y"]
        return {"total": total * scale, "x": [batch["x"] + weights[1]]}

    specs = ({"x": ("i", None), "y": ()}, None, None, None)
    run = spmdx.shard_map(local, line_of(4), specs, {"total": (), "x": [("i", None)]})
    x, y, weights = numbers(8, 3), numbers(), [numbers(), numbers(3)]
    result = run(
        {"x": x.to("spmdx"), "y": y.to("spmdx")}, [w.to("spmdx") for w in weights], 2.0, "as it is"
    )
    torch.testing.assert_close(result["total"].cpu(), (x.sum() * weights[0] + y) * 2.0)
    torch.testing.assert_close(result["x"][0].cpu(), x + weights[1])


def test_a_region_within_a_region_takes_other_axes():
    mesh = grid(2, 4)

    def inner(x):
        assert x.shape == (4, 2)
        return comm.all_reduce(x.sum(0), "j") + comm.all_reduce(x.sum(), ("i", "j"))

    def outer(x):
        assert x.shape == (4, 8)
        inside = spmdx.shard_map(
            lambda t: comm.all_gather(inner(t), "j"), mesh, ((None, "j"),), (None,), axes=("j",)
        )
        return inside(x) * (1 + comm.axis_index("i"))

    def reference(x):
        rows = []
        for i, block in enumerate(x.chunk(2)):
            one = sum(block.chunk(4, 1)).sum(0) + x.sum()
            rows.append(one.repeat(4) * (1 + i))
        return torch.cat(rows)

    run = spmdx.shard_map(outer, mesh, (("i", None),), ("i",), axes=("i",))
    check(run, reference, numbers(8, 8))


def test_an_axis_that_is_not_manual_is_left_to_the_planner():
    mesh = grid(4, 2)

    def local(x, w):
        assert x.shape == (2, 6) and w.shape == (6, 4)
        return comm.all_reduce((x @ w).sum(), "i")

    w = numbers(6, 4)
    run = spmdx.shard_map(local, mesh, (("i", None), None), (), axes=("i",))
    check(run, lambda x, w: (x @ w).sum(), numbers(8, 6), w)
    cut = spmdx.mark_sharding(w.to("spmdx"), mesh, (None, "j"))
    x = numbers(8, 6)
    torch.testing.assert_close(run(x.to("spmdx"), cut).cpu(), (x @ w).sum(), atol=1e-5, rtol=1e-5)


def test_random_numbers_differ_between_devices_and_follow_the_seed():
    run = spmdx.shard_map(lambda x: x + torch.rand_like(x), line_of(4), (("i",),), ("i",))

    def draw():
        torch.manual_seed(3)
        return run(torch.zeros(8).to("spmdx")).cpu()

    first = draw()
    assert torch.equal(first, draw()) and len(set(first.tolist())) == 8
    assert ((first >= 0) & (first < 1)).all()


# ---- errors --------------------------------------------------------------------------------------


def here():
    return inspect.currentframe().f_back.f_lineno


def double(x):
    return x * 2


ERRORS = {
    "too few specs": (
        lambda m, x: spmdx.shard_map(double, m, (), ("i", None))(x),
        "in_specs is (), 0 specs for 1 arguments",
    ),
    "rank": (
        lambda m, x: spmdx.shard_map(double, m, (("i",),), ("i", None))(x),
        "the partition spec of argument 0 is ('i',), its rank is 2",
    ),
    "axis": (
        lambda m, x: spmdx.shard_map(double, m, (("k", None),), ("i", None))(x),
        "the partition spec of argument 0 names 'k', which is no axis of Mesh(i=2, j=2)",
    ),
    "twice": (
        lambda m, x: spmdx.shard_map(double, m, (("i", "i"),), ("i", None))(x),
        "the partition spec ('i', 'i') of argument 0 names twice the axis 'i'",
    ),
    "not manual": (
        lambda m, x: spmdx.shard_map(double, m, (("j", None),), ("i", None), axes=("i",))(x),
        "names, but the region does not make manual, the axis 'j'",
    ),
    "no such manual axis": (
        lambda m, x: spmdx.shard_map(double, m, (None,), None, axes=("k",)),
        "'k' is no axis of Mesh(i=2, j=2)",
    ),
    "no mesh": (
        lambda m, x: spmdx.shard_map(double, "mesh", (None,), None),
        "the mesh is a str",
    ),
    "uneven": (
        lambda m, x: spmdx.shard_map(double, m, ((None, "i"),), ("i", None))(x),
        "dim 1 of argument 0 has the size 7, which 2 devices along 'i' cannot share evenly",
    ),
    "cpu": (
        lambda m, x: spmdx.shard_map(double, m, (("i", None),), ("i", None))(x.cpu()),
        "argument 0 is on device 'cpu'",
    ),
    "varies": (
        lambda m, x: spmdx.shard_map(double, m, (("i", None),), (None, None))(x),
        "the result may differ between the devices along 'i', which its out_spec does not name",
    ),
    "structure": (
        lambda m, x: spmdx.shard_map(lambda x: [x, x], m, (("i", None),), [("i", None)])(x),
        "the result is a list of 2, its spec is [('i', None)]",
    ),
    "spec of a number": (
        lambda m, x: spmdx.shard_map(double, m, (("i",),), None)(3),
        "argument 0 is a int and has the spec ('i',)",
    ),
    "outside": (lambda m, x: comm.all_reduce(x, "i"), "it was called outside of a manual region"),
    "reduction": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.all_reduce(x, "i", op="product"), m, (None,), None
        )(x),
        "there is no reduction 'product'",
    ),
    "bools": (
        lambda m, x: spmdx.shard_map(lambda x: comm.all_reduce(x > 0, "i"), m, (None,), None)(x),
        "the sum of tensors of dtype torch.bool is not defined",
    ),
    "mean of integers": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.all_reduce(x.long(), "i", op="mean"), m, (None,), None
        )(x),
        "the mean of tensors of dtype torch.int64 is not defined",
    ),
    "no such axis": (
        lambda m, x: spmdx.shard_map(lambda x: comm.all_gather(x, "k"), m, (None,), None)(x),
        "'k' is no manual axis here. Expected one of 'i', 'j'",
    ),
    "no such dim": (
        lambda m, x: spmdx.shard_map(lambda x: comm.all_gather(x, "i", 2), m, (None,), None)(x),
        "there is no dim 2 in a local tensor of shape (4, 7)",
    ),
    "unequal parts": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.reduce_scatter(x, "i", dim=1), m, (None,), None
        )(x),
        "dim 1 of the local shape (4, 7) is not a multiple of the 2 devices that share it",
    ),
    "pair out of range": (
        lambda m, x: spmdx.shard_map(lambda x: comm.permute(x, "i", [(0, 2)]), m, (None,), None)(x),
        "the pair (0, 2) names a device that axis 'i' of size 2 lacks",
    ),
    "pair repeated": (
        lambda m, x: spmdx.shard_map(
            lambda x: comm.permute(x, "i", [(0, 1), (1, 1)]), m, (None,), None
        )(x),
        "the pair (1, 1) repeats a sender or a receiver",
    ),
    "mark inside": (
        lambda m, x: spmdx.shard_map(
            lambda x: spmdx.mark_sharding(x * 2, m, (None, None)), m, (("i", None),), ("i", None)
        )(x),
        "the tensor is local to a manual region",
    ),
    "same axis again": (
        lambda m, x: spmdx.shard_map(
            lambda x: spmdx.shard_map(double, m, (None,), None)(x), m, (None,), None
        )(x),
        "a manual region over 'i', 'j' of Mesh(i=2, j=2) is opened within one",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_mistake_is_told_with_the_users_line(name):
    run, message = ERRORS[name]
    with pytest.raises(spmdx.ShardingError) as caught:
        run(grid(2, 2), numbers(4, 7).to("spmdx"))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{FILE}:")
    assert str(caught.value).count(". ") >= 2  # what was wrong, what was expected, how to mend it


def test_after_an_error_inside_a_region_one_is_outside_again():
    mesh = line_of(2)
    with pytest.raises(ZeroDivisionError):
        spmdx.shard_map(lambda x: 1 // 0, mesh, (None,), None)(torch.ones(2).to("spmdx"))
    with pytest.raises(spmdx.ShardingError, match="outside of a manual region"):
        comm.axis_index("i")


def test_reading_a_number_inside_a_region_is_refused():
    run = spmdx.shard_map(lambda x: x * x.sum().item(), line_of(2), (("i",),), ("i",))
    with pytest.raises(RuntimeError, match="item"):
        run(torch.ones(4).to("spmdx"))


def test_a_gradient_taken_inside_a_region_through_a_collective_is_refused():
    def local(x):
        return torch.func.grad(lambda t: comm.all_reduce((t * t).sum(), "i"))(x)

    run = spmdx.shard_map(local, line_of(2), (("i",),), ("i",))
    with pytest.raises(spmdx.ShardingError, match="taken through a collective inside"):
        run(torch.ones(4).to("spmdx"))


def test_a_gradient_taken_inside_a_region_of_local_work_is_local():
    def local(x):
        return torch.func.grad(lambda t: (t * t).sum())(x) * comm.all_reduce(x.sum(), "i")

    run = spmdx.shard_map(local, line_of(2), (("i",),), ("i",))
    check(run, lambda x: 2 * x * x.sum(), numbers(6))


def test_the_cases_cover_every_public_collective():
    called = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"}
    assert called | {"axis_index", "axis_size"} == set(comm.__all__)
    assert len(list(itertools.product(CASES, SIZES))) == 44
