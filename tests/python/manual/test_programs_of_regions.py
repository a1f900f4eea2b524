# SPDX-License-Identifier: Apache-2.0
"""Layers, models and attention that are cut by hand equal those that are not."""

import math

import pytest
import spmdx
import torch
from messages import eight_devices
from regions import SIZES, check, grid, kinds, line_of, numbers, ring
from spmdx import collectives as comm


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


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
    over = {c.axes: c.bytes for c in spmdx.explain().collectives}
    # One bucket of gradients; one of the result and the input's gradient, which no op reads.
    assert sorted(over) == [("i",), ("j",)]
    assert over["j",] == 2 * (2 * 5 + 2 * 6) * 4 // 2


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
