# SPDX-License-Identifier: Apache-2.0
"""Nets that people train: convolutions, recurrent nets, embeddings, norms, experts, graphs."""

import torch
import torch.nn.functional as F
from cliff_row import EVERYWHERE, Goal, Rows, graded, with_sgd
from torch import nn

ROWS = Rows()


def class_loss(x, y):
    return lambda m: F.cross_entropy(m(x), y)


@ROWS.add("convolutions and batch norm, training", "3 of 16 to 32 channels, 16 of 32 x 32")
def convolutions(at):
    parts = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    parts += [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return with_sgd(at.model(model), class_loss(at.rows(16, 3, 32, 32), at.ints(10, 16)))


@ROWS.add("batch norm, evaluation", "16 channels, 32 of 32 x 32, 2 convolutions")
def evaluated_norm(at):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3))
    model, x = at.model(model.eval()), at.rows(32, 3, 32, 32)
    return torch.no_grad()(lambda: model(x))


@ROWS.add("U-Net block, training", "down, up, skip; 16 channels, 8 of 32 x 32")
def u_net(at):
    parts = (
        nn.Conv2d(3, 16, 3, padding=1),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.Conv2d(48, 3, 3, padding=1),
    )
    model, x = at.model(nn.ModuleList(parts)), at.rows(8, 3, 32, 32)

    def loss_of(m):
        skip = F.group_norm(F.silu(m[0](x)), 4)
        low = F.group_norm(F.silu(m[1](skip)), 4)
        high = F.interpolate(low, scale_factor=2, mode="nearest")
        return m[2](torch.cat([skip, high], 1)).square().mean()

    return with_sgd(model, loss_of)


@ROWS.add("transposed and depthwise convolutions, training", "16 channels, 8 of 32 x 32")
def transposed(at):
    parts = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 16, 1)
    model = nn.Sequential(*parts, nn.GELU(), nn.ConvTranspose2d(16, 8, 2, 2))
    x = at.rows(8, 16, 32, 32)
    return with_sgd(at.model(model), lambda m: m(x).square().mean())


@ROWS.add("convolution of 1 dim, training", "causal, 4 layers of 64 channels, 8 x 512")
def one_dim(at):
    model = nn.Sequential(*[nn.Conv1d(64, 64, 3, padding=2, dilation=2) for _ in range(4)])
    x = at.rows(8, 64, 512)
    return with_sgd(at.model(model), lambda m: m(x).relu().mean())


for name, kind in {"nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU, "nn.RNN": nn.RNN}.items():

    @ROWS.add(f"{name}, training", "2 layers of 128, batch 32, 32 steps")
    def recurrent(at, kind=kind):
        model, x = at.model(kind(64, 128, 2, batch_first=True)), at.rows(32, 32, 64)
        return with_sgd(model, lambda m: m(x)[0].square().mean())


for name, kind in {"LSTMCell": nn.LSTMCell, "GRUCell": nn.GRUCell}.items():

    @ROWS.add(f"{name} in a loop, training", "128, batch 32, 32 steps")
    def cells(at, kind=kind):
        model, x = at.model(kind(64, 128)), at.rows(32, 32, 64)

        def loss_of(m):
            state, loss = None, 0.0
            for t in range(32):
                state = m(x[:, t], state)
                loss = loss + (state[0] if isinstance(state, tuple) else state).square().mean()
            return loss

        return with_sgd(model, loss_of)


@ROWS.add("embedding, training", "20,000 words of 64, 2,048 looked up")
def embedding(at):
    ids = at.ints(20000, 32, 64)
    return with_sgd(at.model(nn.Embedding(20000, 64)), lambda m: m(ids).square().sum())


@ROWS.add("embedding bag, training", "mean of 32 of 20,000 words of 64, batch 256")
def embedding_bag(at):
    ids = at.ints(20000, 256, 32)
    return with_sgd(at.model(nn.EmbeddingBag(20000, 64)), lambda m: m(ids).square().sum())


@ROWS.add("cross entropy of a large vocabulary, gradient", "256 x 20,000")
def vocabulary(at):
    x, y = at.rows(256, 20000, grad=True), at.ints(20000, 256)
    return graded(lambda: F.cross_entropy(x, y), x)


@ROWS.add("language model's head and loss, training", "128 to 10,000, 256 tokens")
def head(at):
    x, y = at.rows(256, 128), at.ints(10000, 256)
    return with_sgd(at.model(nn.Linear(128, 10000)), class_loss(x, y))


def normed(at, norm):
    model = nn.Sequential(*[norm(nn.Linear(256, 256)) for _ in range(4)])
    x = at.rows(128, 256)
    return with_sgd(at.model(model), lambda m: m(x).square().mean())


@ROWS.add("weight norm, training", "4 x 256, batch 128")
def weight_norm(at):
    return normed(at, nn.utils.parametrizations.weight_norm)


@ROWS.add("spectral norm, training", "4 x 256, batch 128")
def spectral_norm(at):
    return normed(at, nn.utils.parametrizations.spectral_norm)


@ROWS.add("mixture of experts, top 2 of 8, training", "128 wide, 256 tokens, one hot weights")
def experts(at):
    gate, up, down = (at.put(t * 0.05) for t in (torch.randn(128, 8), *torch.randn(2, 8, 128, 128)))
    leaves = [w.requires_grad_() for w in (gate, up, down)]
    x = at.rows(256, 128)

    def loss_of():
        share, which = (x @ gate).softmax(-1).topk(2)
        weights = torch.zeros(256, 8, device=at.device).scatter(1, which, share)
        y = torch.einsum("td,edh->teh", x, up).relu()
        return torch.einsum("teh,ehd,te->td", y, down, weights).square().mean()

    return graded(loss_of, *leaves)


@ROWS.add("mixture of experts by masks, inference", "8 experts of 128, 512 tokens, x[mask]")
def masked_experts(at):
    weights, gate, x = at.whole(8, 128, 128), at.whole(128, 8), at.rows(512, 128)

    def step():
        which, y = (x @ gate).argmax(-1), torch.zeros_like(x)
        for e in range(8):
            mask = which == e
            y[mask] = x[mask] @ weights[e]
        return y

    return step


@ROWS.add("contrastive loss, gradient", "512 pairs of 128")
def contrastive(at):
    a, b = at.rows(512, 128, grad=True), at.rows(512, 128, grad=True)
    label = at.put(torch.arange(512), "x")

    def loss_of():
        scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).t() / 0.1
        return F.cross_entropy(scores, label) + F.cross_entropy(scores.t(), label)

    return graded(loss_of, a, b)


@ROWS.add("message passing on a graph, training", "2,000 nodes of 64, 10,000 edges")
def messages(at):
    model, x = at.model(nn.ModuleList(nn.Linear(64, 64) for _ in range(2))), at.rows(2000, 64)
    source, target = at.ints(2000, 10000), at.ints(2000, 10000)

    def loss_of(m):
        h = x
        for layer in m:
            sums = torch.zeros_like(h).index_add(0, target, layer(h)[source])
            h = torch.relu(h + sums)
        return h.mean()

    return with_sgd(model, loss_of)


@ROWS.add("variational autoencoder's loss, gradient", "256 x 784, latent 32")
def autoencoder(at):
    parts = nn.Linear(784, 256), nn.Linear(256, 64), nn.Linear(32, 784)
    model, x = at.model(nn.ModuleList(parts)), at.put(torch.rand(256, 784), "x")
    noise = at.rows(256, 32)

    def loss_of(m):
        mean, log = m[1](m[0](x).relu()).chunk(2, 1)
        y = m[2](mean + noise * (log / 2).exp())
        divergence = -0.5 * (1 + log - mean.square() - log.exp()).sum()
        return F.binary_cross_entropy_with_logits(y, x, reduction="sum") + divergence

    return with_sgd(model, lambda m: loss_of(m) / 256)


def perceptron(count, width):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])


@ROWS.add(
    "100 tiny parameters, fully sharded",
    "50 linear layers of 8, 8 devices",
    goal=Goal(judged=(8,), only=True),
)
def tiny(at):
    model, x = at.model(perceptron(50, 8)), at.rows(64, 8)
    if at.mesh is not None:
        import spmdx

        spmdx.fully_shard(model, at.mesh, axis="x")
    return with_sgd(model, lambda m: m(x).square().mean())


@ROWS.add(
    "linear layers cut by rows and columns",
    "2 blocks of 256-1024-256",
    goal=Goal(judged=EVERYWHERE),
)
def megatron(at):
    shapes = [s for _ in range(2) for s in ((1024, 256), (256, 1024))]
    weights = [
        at.put(torch.randn(*s) * 0.03, *(("x", None) if s[0] > s[1] else (None, "x")))
        for s in shapes
    ]
    x = at.whole(128, 256)

    def step():
        y = x
        for up, down in zip(weights[::2], weights[1::2], strict=True):
            y = y + F.linear(F.gelu(F.linear(y, up)), down)
        return y

    return step
