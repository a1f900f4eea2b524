# SPDX-License-Identifier: Apache-2.0
"""Whole training steps need exactly the collectives that are known to be enough for them."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
torch.set_num_threads(1)

SIZES = [2, 4, 8]
BELOW = pytest.mark.parametrize("embedded", [True, False], ids=["embedding", "input"])
COLUMN, COLUMN_BIAS, ROW = ("model", None), ("model",), (None, "model")


def line(size, axis):
    return spmdx.Mesh(range(size), (size,), (axis,))


def mark(module, mesh, spec, bias=None):
    spmdx.mark_sharding(module.weight, mesh, spec)
    if bias is not None:
        spmdx.mark_sharding(module.bias, mesh, bias)


def settled(*tensors):
    """Parameters and data lie as annotated: moving them there is no part of a step."""
    spmdx.mark_step()
    return tensors


def step(model, optimizer, loss_of):
    """One training step, traced and planned; the report of what it would do."""
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    report = spmdx.explain(loss)
    spmdx.mark_step()
    return report


def kinds(report, least=0):
    """How many collectives of each kind move more than `least` bytes."""
    found = {}
    for c in report.collectives:
        if c.bytes > least:
            found[c.kind] = found.get(c.kind, 0) + c.count
    return found


def reduced(size, group, items=4):
    """Bytes of an all_reduce of `size` elements."""
    return 2 * size * items * (group - 1) // group


def scattered(size, group, items=4):
    """Bytes of a reduce_scatter or an all_gather of `size` elements."""
    return size * items * (group - 1) // group


def parameters(model):
    return sum(p.numel() for p in model.parameters())


# ---- multilayer perceptrons ----------------------------------------------------------------------


class Perceptron(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def perceptron_step(model, mesh, spec, batch=512, width=64):
    x, y = torch.randn(batch, width).to("spmdx"), torch.randn(batch, width).to("spmdx")
    for t in (x, y):
        spmdx.mark_sharding(t, mesh, spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(model):
        return F.mse_loss(model(x), y)

    step(model, optimizer, loss_of)  # the optimizer's state exists from now on
    return step(model, optimizer, loss_of)


@pytest.mark.parametrize("group", SIZES)
def test_a_data_parallel_perceptron_reduces_its_gradients_once(group):
    model = Perceptron(3, 64).to("spmdx")
    report = perceptron_step(model, line(group, "data"), ("data", None))
    assert kinds(report) == {"all_reduce": 1}
    assert report.wire_bytes == reduced(parameters(model) + 1, group)


@pytest.mark.parametrize("layers", [2, 4, 6])
@pytest.mark.parametrize("group", SIZES)
def test_alternating_column_and_row_weights_take_layers_minus_one_reductions(layers, group):
    mesh, model = line(group, "model"), Perceptron(layers, 64).to("spmdx")
    for i, layer in enumerate(model.layers):
        mark(layer, mesh, ROW if i % 2 else COLUMN, None if i % 2 else COLUMN_BIAS)
    settled()
    report = perceptron_step(model, mesh, (None, None), batch=64)
    assert kinds(report) == {"all_reduce": layers - 1}
    assert report.wire_bytes == (layers - 1) * reduced(64 * 64, group)


# ---- transformer layers --------------------------------------------------------------------------

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
    assert counts == {"all_gather": 4 * layers + 1, "reduce_scatter": 4 * layers}
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


# ---- sharded state -------------------------------------------------------------------------------


@pytest.mark.parametrize("group", SIZES)
def test_fully_sharded_training_gathers_twice_and_scatters_once(group):
    mesh, model = line(group, "data"), Perceptron(3, 64).to("spmdx")
    for p in model.parameters():
        spmdx.mark_sharding(p, mesh, ("data",) + (None,) * (p.dim() - 1))
    settled()
    report = perceptron_step(model, mesh, ("data", None))
    weights = 3 * 64 * 64
    biases = 3 * 64
    assert set(kinds(report, 16)) == {"all_gather", "reduce_scatter"}
    gathered = sum(c.bytes for c in report.collectives if c.kind == "all_gather")
    # The first layer's weight has no use in backward: its input needs no gradient.
    assert gathered <= scattered(weights + 2 * 64 * 64 + biases, group)
    back = sum(c.bytes for c in report.collectives if c.kind == "reduce_scatter")
    assert back == scattered(weights + biases, group)
    assert report.wire_bytes - gathered - back == reduced(1, group)  # the loss


def zero(group, gradients):
    """A data parallel step with cut optimizer state (and gradients) and whole parameters."""
    mesh, model = line(group, "data"), Perceptron(3, 64).to("spmdx")
    for p in model.parameters():
        spmdx.mark_sharding(p, mesh, (None,) * p.dim())
    x, y = torch.randn(512, 64).to("spmdx"), torch.randn(512, 64).to("spmdx")
    for t in (x, y):
        spmdx.mark_sharding(t, mesh, ("data", None))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    reports = []
    for _ in range(3):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if gradients:
            for p in model.parameters():
                spmdx.mark_sharding(p.grad, mesh, ("data",) + (None,) * (p.dim() - 1))
        optimizer.step()
        for p in model.parameters():
            for name in ("exp_avg", "exp_avg_sq"):
                state = optimizer.state[p][name]
                spmdx.mark_sharding(state, mesh, ("data",) + (None,) * (p.dim() - 1))
        if not gradients:
            optimizer.zero_grad()
        reports.append(spmdx.explain(loss))
        spmdx.mark_step()
        optimizer.zero_grad()
    return model, reports[-1]


@pytest.mark.parametrize("gradients", [False, True], ids=["state cut", "state and gradients cut"])
@pytest.mark.parametrize("group", SIZES)
def test_a_cut_optimizer_state_scatters_gradients_and_gathers_parameters(group, gradients):
    model, report = zero(group, gradients)
    count = parameters(model)
    assert set(kinds(report, 16)) == {"reduce_scatter", "all_gather"}
    assert report.wire_bytes == 2 * scattered(count, group) + reduced(1, group)


# ---- mixture of experts --------------------------------------------------------------------------


class Experts(nn.Module):
    """Experts by einsum over groups of tokens: dispatch, two layers an expert, combine."""

    def __init__(self, experts, width, hidden, capacity):
        super().__init__()
        self.capacity = capacity
        self.gate = nn.Parameter(torch.randn(width, experts) * 0.1)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * 0.1)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.1)

    def forward(self, x, slots):
        weights = torch.einsum("gsm,me->gse", x, self.gate).softmax(-1)
        dispatch = (
            slots  # [groups, tokens, experts, capacity]: which slot of which expert a token has
        )
        combine = weights.unsqueeze(-1) * slots
        h = torch.einsum("gsec,gsm->egcm", dispatch, x)
        h = torch.einsum("egcm,emh->egch", h, self.up).relu()
        h = torch.einsum("egch,ehm->egcm", h, self.down)
        return torch.einsum("gsec,egcm->gsm", combine, h)


def experts_step(group, layers, marked):
    groups, tokens, width, hidden, capacity = 8, 32, 64, 128, 8
    mesh = line(group, "expert")
    model = nn.ModuleList(Experts(group, width, hidden, capacity) for _ in range(layers)).to(
        "spmdx"
    )
    for layer in model:
        for weight in (layer.up, layer.down):
            spmdx.mark_sharding(weight, mesh, ("expert", None, None))
    x, y = (torch.randn(groups, tokens, width).to("spmdx") for _ in range(2))
    slots = torch.rand(groups, tokens, group, capacity).gt(0.9).float().to("spmdx")
    for t in (x, y, slots):
        spmdx.mark_sharding(t, mesh, ("expert",) + (None,) * (t.dim() - 1))
    settled()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss_of(model):
        h = x
        for layer in model:
            h = h + layer(h, slots)
        return F.mse_loss(h, y)

    step(model, optimizer, loss_of)
    report = step(model, optimizer, loss_of)
    sent = (
        groups * group * capacity * width // group
    )  # elements a device has of the dispatched tokens
    return report, layers, scattered(sent, group), width * group


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("group", [4, 8])
def test_experts_exchange_tokens_four_times_and_reduce_the_gate(group, layers):
    report, layers, exchange, gate = experts_step(group, layers, marked=True)
    assert set(kinds(report)) == {"all_to_all", "all_reduce"}
    # The first layer's tokens need no gradient, so one exchange of the four falls away there.
    assert report.count("all_to_all") in (4 * layers, 4 * layers - 1)
    assert (
        sum(c.bytes for c in report.collectives if c.kind == "all_to_all") <= 4 * layers * exchange
    )
    reductions = sum(c.bytes for c in report.collectives if c.kind == "all_reduce")
    assert reductions == reduced(layers * gate + 1, group)


# ---- the loss ------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", SIZES)
def test_cross_entropy_of_a_cut_batch_moves_two_numbers(group):
    mesh = line(group, "data")
    logits = torch.randn(64, 1000).to("spmdx").requires_grad_()
    target = torch.randint(1000, (64,)).to("spmdx")
    spmdx.mark_sharding(logits, mesh, ("data", None))
    spmdx.mark_sharding(target, mesh, ("data",))
    settled()
    loss = F.cross_entropy(logits, target)
    loss.backward()
    report = spmdx.explain(loss)
    assert set(kinds(report)) == {"all_reduce"}
    assert report.wire_bytes <= reduced(2, group)
