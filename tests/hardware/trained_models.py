# SPDX-License-Identifier: Apache-2.0
"""Six small models of the kinds that people train, and their loops of training."""

import dataclasses
import fnmatch
from collections.abc import Callable, Sequence

import spmdx
import torch
from spmdx.auto import Strategy
from torch import nn
from torch.nn import functional

STEPS = 20


class Attention(nn.Module):
    """Of several heads, causal or not, with rotations of positions or without."""

    def __init__(self, width: int, heads: int, causal: bool, rotates: bool = False):
        super().__init__()
        self.heads, self.causal, self.rotates = heads, causal, rotates
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        if self.rotates:
            q, k = rotated(q), rotated(k)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


def rotated(x):
    """Source: J. Su et al., RoFormer, 2021."""
    half = x.shape[-1] // 2
    rate = 10000 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angle = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * rate
    left, right = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


class RmsNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Gated(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner), nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each row goes through the experts that a router likes best, weighted."""

    def __init__(self, width: int, inner: int, count: int):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, inner, width) / inner**0.5)

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        likes = scores >= scores.topk(2, -1).values[..., -1:]
        weight = torch.where(likes, scores, 0.0)
        inner = functional.gelu(torch.einsum("btd,edi->btei", x, self.up))
        return torch.einsum("btei,eid,bte->btd", inner, self.down, weight)


class Block(nn.Module):
    def __init__(self, norm: Callable, attention: nn.Module, mlp: nn.Module, width: int):
        super().__init__()
        self.first, self.second = norm(width), norm(width)
        self.attention, self.mlp = attention, mlp

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Language(nn.Module):
    def __init__(self, block: Callable[[], nn.Module], width: int = 32, words: int = 32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(16, width)
        self.blocks = nn.Sequential(block(), block())
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        return self.head(self.blocks(self.words(tokens) + self.places(places)))


def perceptron(width: int = 32, inner: int = 48):
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class Vision(nn.Module):
    """Source: A. Dosovitskiy et al., An Image is Worth 16x16 Words, 2020."""

    def __init__(self, width: int = 32, inner: int = 48):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.places = nn.Parameter(torch.randn(1, 16, width) * 0.1)
        mlp = perceptron(width, inner)
        self.block = Block(nn.LayerNorm, Attention(width, 4, False), mlp, width)
        self.head = nn.Linear(width, 8)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.block(x).mean(1))


class Residual(nn.Module):
    """Smooth: where rounding decides the sign that a ReLU is given, gradients jump.

    Source: K. He et al., Deep Residual Learning, 2015.
    """

    def __init__(self, width: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(width, 2 * width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(2 * width, 2 * width, 3, 1, 1, bias=False)
        self.past = nn.Conv2d(width, 2 * width, 1, stride, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(2 * width) for _ in range(3))

    def forward(self, x):
        inner = functional.silu(self.norms[0](self.first(x)))
        return functional.silu(self.norms[1](self.second(inner)) + self.norms[2](self.past(x)))


def resnet(width: int = 8):
    stem = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU()
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 8)
    blocks = Residual(width, 1), Residual(2 * width, 2)
    return nn.Sequential(*stem, nn.MaxPool2d(2), *blocks, *head)


class UNet(nn.Module):
    """Source: O. Ronneberger et al., U-Net, 2015."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.into, self.down = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, width, 3, 2, 1)
        self.norm, self.middle = nn.GroupNorm(2, width), nn.Conv2d(width, width, 3, 1, 1)
        self.up = nn.ConvTranspose2d(width, width, 2, 2)
        self.out = nn.Conv2d(2 * width, 3, 3, 1, 1)

    def forward(self, x):
        wide = functional.silu(self.into(x))
        deep = functional.silu(self.middle(functional.silu(self.norm(self.down(wide)))))
        return self.out(torch.cat([wide, self.up(deep)], 1))


def of_words(scores, tokens):
    return functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model, what it is fed, and its loss of what it gives and a target."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[torch.Tensor, torch.Tensor]]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _tokens():
    tokens = torch.randint(32, (8, 16))
    return tokens, tokens


def _labelled():
    return torch.randn(8, 3, 16, 16), torch.arange(8)


MODELS = {
    "gpt": Trained(
        lambda: Language(lambda: Block(nn.LayerNorm, Attention(32, 4, True), perceptron(), 32)),
        _tokens,
        of_words,
    ),
    "llama": Trained(
        lambda: Language(lambda: Block(RmsNorm, Attention(32, 4, True, True), Gated(32, 48), 32)),
        _tokens,
        of_words,
    ),
    "moe": Trained(
        lambda: Language(
            lambda: Block(nn.LayerNorm, Attention(32, 4, True), Experts(32, 16, 4), 32)
        ),
        _tokens,
        of_words,
    ),
    "vit": Trained(Vision, _labelled, functional.cross_entropy),
    "resnet": Trained(resnet, _labelled, functional.cross_entropy),
    "unet": Trained(
        UNet, lambda: (torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16)), functional.mse_loss
    ),
}
# How parameters are cut for tensor parallelism: into columns, then into rows.
PLAN = {
    "*.qkv.weight": ("model", None),
    "*.attention.out.weight": (None, "model"),
    "*.mlp.0.weight": ("model", None),
    "*.mlp.2.weight": (None, "model"),
    "*.mlp.gate.weight": ("model", None),
    "*.mlp.up.weight": ("model", None),
    "*.mlp.down.weight": (None, "model"),
    "*.mlp.up": ("model", None, None),
    "*.mlp.down": ("model", None, None),
    "*.first.weight": ("model", None, None, None),
    "*.second.weight": (None, "model", None, None),
    "down.weight": ("model", None, None, None),
    "middle.weight": (None, "model", None, None),
    "words.weight": (None, "model"),
}
PLACES = {
    "one": None,
    "data 4": Strategy(data=4),
    "fsdp 4": Strategy(data=4, zero=3),
    "model 4": Strategy(model=4),
    "data 2, model 2": Strategy(data=2, model=2),
    "fsdp 2, model 2": Strategy(data=2, model=2, zero=3),
}


def train(
    name: str, place: str | None, dtype: torch.dtype = torch.float32, steps: int = STEPS
) -> tuple[list[float], Sequence[torch.Tensor]]:
    """Losses, and the gradients of the last step, of plain PyTorch if there is no place."""
    torch.manual_seed(0)
    trained = MODELS[name]
    model = trained.model().to(dtype)
    x, target = (t.to(dtype) if t.is_floating_point() else t for t in trained.batch())
    if place is not None:
        model = model.to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-4)
    if place is not None:
        x, target = _placed(model, optimizer, x, target, PLACES[place])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.95**step)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = trained.loss(model(x), target)
        loss.backward()
        optimizer.step()
        schedule.step()
        if place is not None:
            spmdx.mark_step()
        losses.append(loss.detach())
    grads = [p.grad.detach().cpu().double() for p in model.parameters()]
    return [loss.item() for loss in losses], grads


def _placed(model, optimizer, x, target, strategy):
    same = x is target
    x, target = x.to("spmdx"), target.to("spmdx")
    if strategy is None:
        return x, x if same else target
    mesh = strategy.mesh()
    names = dict(model.named_parameters())
    matched = {p for p in PLAN if any(fnmatch.fnmatch(name, p) for name in names)}
    plan = {p: spec for p, spec in PLAN.items() if p in matched and len(spec) == _rank(p, names)}
    cut = dataclasses.replace(strategy, plan=plan if strategy.model > 1 else {})
    cut.mark(model, optimizer, mesh)
    x = strategy.mark_batch(x, mesh)
    return x, x if same else strategy.mark_batch(target, mesh)


def _rank(pattern, names):
    return next(p.dim() for name, p in names.items() if fnmatch.fnmatch(name, pattern))
