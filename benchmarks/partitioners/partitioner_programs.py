# SPDX-License-Identifier: Apache-2.0
"""Programs that are partitioned by spmdx and by XLA: each runs on the CPU, and annotated."""

from collections.abc import Callable
from typing import Any, NamedTuple

import spmdx
import torch
from torch.nn import functional


class Put:
    """Tensors of a program: as they are, or on a mesh; `within` annotates what is computed."""

    def __init__(self, mesh: spmdx.Mesh | None = None):
        self._mesh = mesh

    def __call__(self, tensor: torch.Tensor, *spec: Any, grad: bool = False) -> torch.Tensor:
        if self._mesh is not None:
            tensor = tensor.to("spmdx")
            if spec:
                tensor = spmdx.mark_sharding(tensor, self._mesh, spec)
        return tensor.requires_grad_(grad)

    def within(self, tensor: torch.Tensor, *spec: Any) -> torch.Tensor:
        return tensor if self._mesh is None else spmdx.mark_sharding(tensor, self._mesh, spec)


class Program(NamedTuple):
    """A program, which gives tensors that are traced.

    Attributes:
        mesh: sizes of its axes by their names.
        build: what computes them.
    """

    mesh: dict[str, int]
    build: Callable[[Put], list[torch.Tensor]]


PROGRAMS: dict[str, Program] = {}


def program(name: str, **mesh: int) -> Callable[[Callable[[Put], list[torch.Tensor]]], None]:
    return lambda build: PROGRAMS.update({name: Program(mesh, build)})


def updated(loss: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """The loss, and weights behind a step of SGD."""
    gradients = torch.autograd.grad(loss, weights)
    return [loss, *(w.detach() - 0.1 * g for w, g in zip(weights, gradients, strict=True))]


def mlp(put: Put, batch: Any, first: Any, second: Any) -> list[torch.Tensor]:
    x = put(torch.randn(16, 8), *batch)
    weights = [put(torch.randn(8, 16), *first, grad=True)]
    weights.append(put(torch.randn(16, 8), *second, grad=True))
    loss = ((x @ weights[0]).relu() @ weights[1]).square().mean()
    return updated(loss, weights)


@program("MLP, batch cut", data=2)
def mlp_forward(put):
    x, w = put(torch.randn(16, 8), "data", None), put(torch.randn(8, 16), None, None)
    return [functional.gelu(x @ w) @ put(torch.randn(16, 4), None, None)]


@program("MLP, tensor parallel", model=4)
def mlp_columns_and_rows(put):
    x, w = put(torch.randn(16, 8), None, None), put(torch.randn(8, 16), None, "model")
    return [(x @ w).relu() @ put(torch.randn(16, 8), "model", None)]


@program("MLP, training, batch cut", data=2)
def mlp_data(put):
    return mlp(put, ("data", None), (None, None), (None, None))


@program("MLP, training, FSDP", data=4)
def mlp_fsdp(put):
    return mlp(put, ("data", None), ("data", None), ("data", None))


@program("MLP, training, tensor parallel", model=4)
def mlp_tensor(put):
    return mlp(put, (None, None), (None, "model"), ("model", None))


@program("MLP, training, both", data=2, model=4)
def mlp_both(put):
    return mlp(put, ("data", None), (None, "model"), ("model", None))


@program("MLP, AdamW, batch cut", data=3)
def adamw(put):
    x = put(torch.randn(12, 8), "data", None)
    weights = [put(torch.randn(n, m), None, None, grad=True) for n, m in ((8, 16), (16, 4))]
    (functional.silu(x @ weights[0]) @ weights[1]).square().mean().backward()
    torch.optim.AdamW(weights, lr=0.1).step()
    return [w.detach() for w in weights]


@program("attention, heads cut", model=4)
def attention(put):
    q, k, v = (put(torch.randn(2, 4, 6, 8), None, "model", None, None) for _ in range(3))
    return [functional.scaled_dot_product_attention(q, k, v, is_causal=True)]


@program("attention, gradients, batch and heads cut", data=2, model=2)
def attention_gradients(put):
    spec = "data", "model", None, None
    inputs = [put(torch.randn(2, 4, 6, 8), *spec, grad=True) for _ in range(3)]
    out = functional.scaled_dot_product_attention(*inputs, is_causal=True)
    return list(torch.autograd.grad(out.square().sum(), inputs))


@program("layer norm, batch cut", data=3)
def layer_norm(put):
    x, scale = put(torch.randn(12, 10), "data", None), put(torch.randn(10), None)
    return [functional.layer_norm(x, (10,), scale, put(torch.randn(10), None))]


@program("layer norm, gradients, features cut", model=4)
def layer_norm_gradients(put):
    x = put(torch.randn(6, 16), None, "model", grad=True)
    scale = put(torch.randn(16), "model", grad=True)
    out = functional.layer_norm(x, (16,), scale)
    return list(torch.autograd.grad((out * out.exp()).sum(), [x, scale]))


@program("embedding, rows cut", model=4)
def embedding(put):
    ids = put(torch.randint(0, 32, (4, 6)), None, None)
    return [functional.embedding(ids, put(torch.randn(32, 8), "model", None))]


@program("embedding, gradient, batch cut", data=2)
def embedding_gradient(put):
    table = put(torch.randn(32, 8), None, None, grad=True)
    ids = put(torch.randint(0, 32, (4, 6)), "data", None)
    return list(torch.autograd.grad(functional.embedding(ids, table).sin().sum(), [table]))


@program("convolution, batch cut", data=4)
def convolution(put):
    x, w = put(torch.randn(8, 3, 9, 9), "data", None, None, None), put(torch.randn(4, 3, 3, 3))
    return [functional.max_pool2d(functional.conv2d(x, w, padding=1).relu(), 3)]


@program("convolution, gradients, batch and channels cut", data=2, model=2)
def convolution_gradients(put):
    x = put(torch.randn(4, 3, 8, 8), "data", None, None, None, grad=True)
    w = put(torch.randn(6, 3, 3, 3), "model", None, None, None, grad=True)
    out = functional.conv2d(x, w, stride=2)
    return list(torch.autograd.grad(out.square().sum(), [x, w]))


@program("cross entropy, gradient, classes cut", model=4)
def cross_entropy(put):
    scores = put(torch.randn(6, 32), None, "model", grad=True)
    loss = functional.cross_entropy(scores, put(torch.randint(0, 32, (6,)), None))
    return [loss, *torch.autograd.grad(loss, [scores])]


@program("reductions of cut dims", data=2, model=2)
def reductions(put):
    x = put(torch.randn(8, 6, 4), "data", None, "model")
    return [x.sum(), x.mean(0), x.amax((0, 2)), x.var(2), x.logsumexp(0), (x > 0).any(0)]


@program("uneven within, with gradient", data=4)
def uneven(put):
    x = put(torch.randn(16, 8), "data", None, grad=True)
    part = put.within(x[:14].exp(), "data", None)
    loss = (part @ put(torch.randn(8, 7), None, None)).sin().sum()
    return [loss, *torch.autograd.grad(loss, [x])]


@program("odd sizes, batch cut", data=3)
def odd(put):
    x = put(torch.randn(3, 7, 5), "data", None, None)
    return [(x.flatten(0, 1) @ put(torch.randn(5, 11))).softmax(-1), x.transpose(1, 2).cumsum(1)]


@program("product, both operands cut", rows=2, columns=4)
def product(put):
    a = put(torch.randn(8, 16), "rows", "columns")
    return [a @ put(torch.randn(16, 8), "columns", "rows"), a.t().contiguous()]


@program("a dim cut by two axes", data=2, model=2)
def two_axes(put):
    x = put(torch.randn(16, 6), ("data", "model"), None)
    return [put.within((x * 2 + 1).view(2, 8, 6), "data", "model", None).sum(1)]


@program("moved within", data=4)
def moved(put):
    x = put(torch.randn(8, 12), "data", None)
    return [put.within(x.tanh(), None, "data").softmax(0)]


@program("transformer block, training", data=2, model=4)
def block(put):
    x = put(torch.randn(4, 6, 16), "data", None, None)
    columns, rows = ((16, 48), (16, 32)), ((16, 16), (32, 16))
    weights = [put(torch.randn(s) / 4, None, "model", grad=True) for s in columns]
    weights += [put(torch.randn(s) / 4, "model", None, grad=True) for s in rows]
    heads = (functional.layer_norm(x, (16,)) @ weights[0]).view(4, 6, 3, 4, 4)
    q, k, v = heads.permute(2, 0, 3, 1, 4)
    seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + seen.transpose(1, 2).reshape(4, 6, 16) @ weights[2]
    x = x + functional.gelu(functional.layer_norm(x, (16,)) @ weights[1]) @ weights[3]
    return updated(x.square().mean(), weights)


def run(name: str, put: Put) -> list[torch.Tensor]:
    """The results of a program, whose numbers are the same each time."""
    torch.manual_seed(0)
    return PROGRAMS[name].build(put)


def mesh_of(name: str) -> spmdx.Mesh:
    sizes = PROGRAMS[name].mesh
    count = torch.Size(sizes.values()).numel()
    return spmdx.Mesh(range(count), tuple(sizes.values()), tuple(sizes))
