# SPDX-License-Identifier: Apache-2.0
"""Data parallel programs: whole parameters, a cut batch; gradients are summed once."""

import functools

import torch
import torch.nn.functional as F
from program_nets import Language, Perceptron, language_loss, perceptron_bytes
from program_row import (
    F32,
    I64,
    Row,
    adamw,
    floats,
    gathered,
    integers,
    marked,
    reduced,
    sgd,
    trained,
)
from torch import nn

D, H, BLOCKS, ROWS = 512, 2048, 2, 8192
MLP = perceptron_bytes(BLOCKS, D, H)
LINE = {"x": 8}


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def perceptron(mesh, optimizer=adamw, axes="x", parts=1, after=None):
    """`parts` micro-batches whose gradients are added before the optimizer's step."""
    model = Perceptron(BLOCKS, D, H).to("spmdx")

    def loss(m):
        batches = [marked(mesh, floats(ROWS // parts, D), axes) for _ in range(parts)]
        for x in batches[1:]:
            m(x).square().mean().backward()
        return m(batches[0]).square().mean()

    return trained(model, loss, optimizer, after_backward=after)


def mlp_peak(copies, devices=8):
    """Parameters and state in so many copies; saved: the input, both hidden values and the output
    of each block; at the top of backward the gradients of the output and of both hidden values."""
    saved = ROWS / devices * (D + BLOCKS * (2 * H + D)) * F32
    return copies * MLP + saved + ROWS / devices * (D + 2 * H) * F32


def optimizers():
    kinds = {
        "SGD": (sgd, 1),
        "SGD, momentum": (functools.partial(torch.optim.SGD, lr=1e-3, momentum=0.9), 2),
        "AdamW": (adamw, 3),
        "RMSprop": (torch.optim.RMSprop, 2),
        "Adagrad": (torch.optim.Adagrad, 2),
        "NAdam": (torch.optim.NAdam, 3),
    }
    for name, (optimizer, copies) in kinds.items():
        run = functools.partial(perceptron, optimizer=optimizer)
        # An all_reduce of all gradients; the optimizer works on what is whole.
        yield Row(
            f"data parallel MLP, {name}", LINE, run, reduced(MLP, 8), "AR P", peak=mlp_peak(copies)
        )


def perceptrons():
    yield from optimizers()
    run = functools.partial(perceptron, after=clip)
    # The norm is that of summed gradients, which every device has.
    yield Row("data parallel MLP, clipped", LINE, run, reduced(MLP, 8), "AR P")
    run = functools.partial(perceptron, parts=2)
    # Partial sums of two micro-batches are added before they are summed over devices.
    yield Row("data parallel MLP, 2 micro-batches", LINE, run, reduced(MLP, 8), "AR P")
    run = functools.partial(perceptron, axes=("data", "model"))
    both = {"data": 2, "model": 4}
    yield Row("data parallel MLP, both axes", both, run, reduced(MLP, 8), "AR P", peak=mlp_peak(3))


# --- convolutions ---------------------------------------------------------------------------------


def convolutions(norm):
    widths, layers = (3, 64, 128, 256), []
    for a, b in zip(widths, widths[1:], strict=False):
        layers += [nn.Conv2d(a, b, 3, padding=1, bias=False), norm(b), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(256, 1000))


def classify(mesh, model):
    def loss(model):
        x = marked(mesh, floats(64, 3, 64, 64), "x")
        return F.cross_entropy(model(x), marked(mesh, integers(64), "x"))

    return trained(model, loss)


def normed(mesh, norm):
    return classify(mesh, convolutions(norm).to("spmdx"))


CNN = (9 * (3 * 64 + 64 * 128 + 128 * 256) + 256 * 1000) * F32


def images():
    group = functools.partial(normed, norm=lambda width: nn.GroupNorm(8, width))
    yield Row("data parallel CNN, group norm", LINE, group, reduced(CNN, 8), "AR P")
    batch = functools.partial(normed, norm=nn.BatchNorm2d)
    # Statistics of the whole batch are a few numbers a channel.
    yield Row("data parallel CNN, batch norm", LINE, batch, reduced(CNN, 8), "AR P")


# --- embeddings -----------------------------------------------------------------------------------


def embedded(mesh, vocabulary, tokens):
    model = nn.Sequential(nn.Embedding(vocabulary, D), nn.Linear(D, D, bias=False)).to("spmdx")
    return trained(model, lambda m: m(marked(mesh, integers(tokens), "x")).square().mean(), sgd)


def language(mesh):
    model = Language(2048, 2, D, 8).to("spmdx")
    return trained(model, lambda m: language_loss(m, marked(mesh, integers(32, 128), "x")))


def embeddings():
    for vocabulary, tokens in ((1024, 8192), (32768, 4096)):
        table, rows = vocabulary * D * F32, tokens * (D * F32 + I64)
        # The table's gradient is summed, or the fewer rows that make it are gathered with ids.
        least = min(reduced(table, 8), gathered(rows, 8)) + reduced(D * D * F32, 8)
        run = functools.partial(embedded, vocabulary=vocabulary, tokens=tokens)
        name = f"data parallel embedding, {tokens:,} tokens of {vocabulary:,}"
        yield Row(name, LINE, run, least, "min(AR table, AG rows) + AR rest")
    # The table has half as many rows as there are tokens: an all_reduce of it costs as much as an
    # all_gather of tokens' gradients; the head's gradient has all rows.
    least = 2 * 12 * D * D * F32 + 2 * 2048 * D * F32
    yield Row("data parallel language model", LINE, language, reduced(least, 8), "AR P")


def rows():
    return [*perceptrons(), *images(), *embeddings()]
