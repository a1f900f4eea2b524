# SPDX-License-Identifier: Apache-2.0
"""Steps of transformers need exactly the collectives that are known to be enough for them."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from known_steps import (
    COLUMN,
    COLUMN_BIAS,
    ROW,
    SIZES,
    kinds,
    line,
    mark,
    reduced,
    scattered,
    settled,
    step,
)
from torch import nn
from torch.utils.checkpoint import checkpoint

BELOW = pytest.mark.parametrize("embedded", [True, False], ids=["embedding", "input"])


BATCH, SEQUENCE, WIDTH, HEADS = 4, 32, 64, 8
TOKENS = BATCH * SEQUENCE * WIDTH  # elements of the residual stream


class Layer(nn.Module):
    """Pre-norm attention and a gated MLP, nothing fused. `note` sees the residual stream."""

    def __init__(self, note=None):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.note = note or (lambda x: x)

    def heads(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (self.heads(linear(h)) for linear in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.note(x + self.out(y.transpose(1, 2).flatten(2)))
        h = self.norm2(x)
        return self.note(x + self.down(F.silu(self.gate(h)) * self.up(h)))


def megatron(layer, mesh):
    for column in (layer.q, layer.k, layer.v):
        mark(column, mesh, COLUMN, COLUMN_BIAS)
    for column in (layer.gate, layer.up):
        mark(column, mesh, COLUMN)
    for row in (layer.out, layer.down):
        mark(row, mesh, ROW)


class Stack(nn.Module):
    """`layers` layers, over a trained embedding where `vocabulary` is given."""

    def __init__(self, layers, vocabulary=None, note=None, recompute=False):
        super().__init__()
        self.note, self.recompute = note or (lambda x: x), recompute
        self.tokens = nn.Embedding(vocabulary, WIDTH) if vocabulary else None
        self.layers = nn.ModuleList(Layer(note) for _ in range(layers))

    def forward(self, x):
        if self.tokens is not None:
            x = self.tokens(x)
        x = self.note(x)
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x)
        return x


def stack_step(model, mesh, vocabulary=None):
    for layer in model.layers:
        megatron(layer, mesh)
    if vocabulary:
        x = torch.randint(vocabulary, (BATCH, SEQUENCE)).to("spmdx")
    else:
        x = torch.randn(BATCH, SEQUENCE, WIDTH).to("spmdx")
    y = torch.randn(BATCH, SEQUENCE, WIDTH).to("spmdx")
    settled()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def loss_of(model):
        return F.mse_loss(model(x), y)

    step(model, optimizer, loss_of)
    return step(model, optimizer, loss_of)


@BELOW
@pytest.mark.parametrize("group", SIZES)
def test_a_tensor_parallel_layer_takes_four_reductions(group, embedded):
    vocabulary = 512 if embedded else None
    model = Stack(2, vocabulary).to("spmdx")
    report = stack_step(model, line(group, "model"), vocabulary)
    count = 4 * 2 - (0 if embedded else 1)
    big = reduced(TOKENS, group)
    assert kinds(report, big - 1) == {"all_reduce": count}
    # An input without gradient is spared its sum; the first norm's own gradients are summed.
    rest = 0 if embedded else reduced(2 * WIDTH, group)
    assert report.wire_bytes == count * big + rest


@BELOW
def test_recomputation_repeats_only_the_reductions_whose_results_are_read_again(embedded):
    """6 a layer if all of the forward is run again; the last sum of a layer is read by nobody."""
    vocabulary = 512 if embedded else None
    model = Stack(3, vocabulary, recompute=True).to("spmdx")
    report = stack_step(model, line(4, "model"), vocabulary)
    count = 5 * 3 - (0 if embedded else 1)
    big = reduced(TOKENS, 4)
    assert kinds(report, big - 1) == {"all_reduce": count} and count <= 6 * 3
    assert report.wire_bytes == count * big + (0 if embedded else reduced(2 * WIDTH, 4))


@pytest.mark.parametrize("group", SIZES)
def test_sequence_parallel_layers_gather_and_scatter_twice_each_way(group):
    mesh, layers = line(group, "model"), 2

    def note(x):
        return spmdx.mark_sharding(x, mesh, (None, "model", None))

    plain = stack_step(Stack(layers, 512).to("spmdx"), mesh, 512)
    model = Stack(layers, 512, note).to("spmdx")
    report = stack_step(model, mesh, 512)
    big = scattered(TOKENS, group)
    counts = kinds(report, big - 1)
    # One more gather: the embedding's gradient needs all rows, which are fewer than the table's.
    # A sum that is needed whole, and cut, may be scattered and gathered in one.
    both = counts.pop("all_reduce", 0)
    assert counts == {"all_gather": 4 * layers + 1 - both, "reduce_scatter": 4 * layers - both}
    rest = report.wire_bytes - (8 * layers + 1) * big
    assert rest <= reduced(sum(p.numel() for p in small_parameters(model)) + 1, group)
    assert 8 * layers * big == plain.wire_bytes


def small_parameters(model):
    """Parameters used on cut tokens that no annotation cuts."""
    for name, p in model.named_parameters():
        if "norm" in name or name.endswith("out.bias"):
            yield p


class Language(nn.Module):
    def __init__(self, layers, vocabulary):
        super().__init__()
        self.stack = Stack(layers, vocabulary)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, ids):
        return self.head(self.stack(ids))


@pytest.mark.parametrize("group", SIZES)
def test_vocabulary_parallel_embedding_and_loss_add_four_reductions(group):
    mesh, vocabulary, layers = line(group, "model"), 8192, 2
    model = Language(layers, vocabulary).to("spmdx")
    for layer in model.stack.layers:
        megatron(layer, mesh)
    mark(model.stack.tokens, mesh, COLUMN)
    mark(model.head, mesh, COLUMN)
    ids = torch.randint(vocabulary, (BATCH, SEQUENCE)).to("spmdx")
    settled()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss_of(model):
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    step(model, optimizer, loss_of)
    report = step(model, optimizer, loss_of)
    assert sum(kinds(report).values()) <= 4 * layers + 4
    rows = 4 * reduced(BATCH * SEQUENCE, group)  # at most two of them and a scalar are needed
    assert report.wire_bytes <= (4 * layers + 2) * reduced(TOKENS, group) + rows
