# SPDX-License-Identifier: Apache-2.0
"""Transformers and attention, short and long."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from cliff_row import Goal, Rows, graded, with_sgd
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from train_gpt import GPT, Config  # noqa: E402

ROWS = Rows()
CONFIG = Config(vocab=96, layers=2, width=128, heads=8, context=64, dropout=0.0)


def language_loss(at, batch):
    ids = at.ints(CONFIG.vocab, batch, CONFIG.context)
    return lambda m: F.cross_entropy(m(ids).flatten(0, 1), ids.flatten())


@ROWS.add("GPT, training", "2 layers of 128, batch 8, context 64")
def gpt(at):
    return with_sgd(at.model(GPT(CONFIG)), language_loss(at, 8))


@ROWS.add("GPT, evaluation", "2 layers of 128, batch 8, context 64")
def evaluated(at):
    model, loss_of = at.model(GPT(CONFIG)).eval(), language_loss(at, 8)
    return torch.no_grad()(lambda: loss_of(model))


@ROWS.add("GPT, gradients accumulated", "2 layers of 128, 4 x batch 4")
def accumulated(at):
    model, loss_of = at.model(GPT(CONFIG)), language_loss(at, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for _ in range(4):
            loss = loss_of(model) / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@ROWS.add("GPT, autocast to bfloat16", "2 layers of 128, batch 8", compared=False)
def autocast(at):
    model, loss_of = at.model(GPT(CONFIG)), language_loss(at, 8)

    def in_half(m):
        with torch.autocast(at.device, torch.bfloat16):
            return loss_of(m)

    return with_sgd(model, in_half)


@ROWS.add("nn.TransformerEncoderLayer, training", "128 wide, 4 heads, 16 x 64 tokens")
def encoder(at):
    model = at.model(nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True))
    x = at.rows(16, 64, 128)
    return with_sgd(model, lambda m: m(x).square().mean())


@ROWS.add("nn.MultiheadAttention with a mask, inference", "128 wide, 4 heads, 16 x 64 tokens")
def multihead(at):
    model, x = (
        at.model(nn.MultiheadAttention(128, 4, batch_first=True)).eval(),
        at.rows(16, 64, 128),
    )
    mask = at.put(torch.ones(64, 64).triu(1).bool())
    return torch.no_grad()(lambda: model(x, x, x, attn_mask=mask, need_weights=False)[0])


for tokens in (2048, 4096, 8192):

    @ROWS.add(
        f"attention of {tokens:,} tokens, gradient",
        "2 heads of 16, causal",
        quick=tokens < 4096,
    )
    def attention(at, tokens=tokens):
        q, k, v = (at.whole(1, 2, tokens, 16, grad=True) for _ in "qkv")
        return graded(
            lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True).sum(), q, k, v
        )


@ROWS.add("attention of 4,096 tokens, inference", "4 heads of 16, causal")
def attention_alone(at):
    q, k, v = (at.whole(1, 4, 4096, 16) for _ in "qkv")
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


@ROWS.add("attention written out, gradient", "8 heads of 32, 8 x 128 tokens")
def written_out(at):
    q, k, v = (at.rows(8, 8, 128, 32, grad=True) for _ in "qkv")
    mask = at.put(torch.ones(128, 128).tril().bool())

    def loss_of():
        scores = (q @ k.transpose(-1, -2) / 32**0.5).masked_fill(~mask, -torch.inf)
        return (scores.softmax(-1) @ v).square().sum()

    return graded(loss_of, q, k, v)


@ROWS.add("grouped query attention, gradient", "8 heads of 32, 2 of keys, 4 x 128 tokens")
def grouped(at):
    q = at.rows(4, 8, 128, 32, grad=True)
    k, v = (at.rows(4, 2, 128, 32, grad=True) for _ in "kv")
    call = F.scaled_dot_product_attention
    return graded(lambda: call(q, k, v, is_causal=True, enable_gqa=True).sum(), q, k, v)


@ROWS.add("rotary embedding, gradient", "8 x 8 heads of 64, 128 tokens")
def rotary(at):
    x, angle = at.rows(8, 8, 128, 64, grad=True), at.put(torch.rand(128, 32))

    def loss_of():
        a, b = x.chunk(2, -1)
        c, s = angle.cos(), angle.sin()
        return torch.cat([a * c - b * s, b * c + a * s], -1).square().sum()

    return graded(loss_of, x)


@ROWS.add("RMSNorm and SwiGLU, training", "256-512-256, 512 tokens")
def swiglu(at):
    parts = nn.RMSNorm(256), nn.Linear(256, 1024, bias=False), nn.Linear(512, 256, bias=False)
    model, x = at.model(nn.ModuleList(parts)), at.rows(512, 256)

    def loss_of(m):
        gate, y = m[1](m[0](x)).chunk(2, -1)
        return (x + m[2](F.silu(gate) * y)).square().mean()

    return with_sgd(model, loss_of)


NORMS = {
    "rms_norm": lambda x: F.rms_norm(x, (512,)),
    "layer_norm": lambda x: F.layer_norm(x, (512,)),
    "silu(x) * x": lambda x: F.silu(x) * x,
    "gelu": F.gelu,
    "softmax": lambda x: F.softmax(x, -1) * x,
}
for name, call in NORMS.items():

    @ROWS.add(f"{name}, gradient", "f32[1024, 512]")
    def norm(at, call=call):
        x = at.rows(1024, 512, grad=True)
        return graded(lambda: call(x).sum(), x)


@ROWS.add("checkpointed blocks, training", "4 blocks of 256-512-256, batch 256")
def checkpointed(at):
    blocks = [nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in range(4)]
    model, x = at.model(nn.ModuleList(blocks)), at.rows(256, 256)

    def loss_of(m):
        y = x
        for block in m:
            y = y + checkpoint(block, y, use_reentrant=False)
        return y.square().mean()

    return with_sgd(model, loss_of)


@ROWS.add("linear attention by cumsum, gradient", "4 heads, 512 tokens, 16 x 16", goal=Goal())
def linear_attention(at):
    q, k, v = (at.whole(4, 512, 16, grad=True) for _ in "qkv")

    def loss_of():
        state = (F.elu(k)[..., :, None] * v[..., None, :]).cumsum(1)
        return (F.elu(q)[..., None, :] @ state).square().sum()

    return graded(loss_of, q, k, v)
