# SPDX-License-Identifier: Apache-2.0
"""Tiny transformers in plain PyTorch whose blocks can be shared out to the stages of a pipeline."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, HEADS, CONTEXT = 20, 16, 4, 6


def causal_mask(length, device):
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


class Attention(nn.Module):
    """Attention of `x` to `memory`, or to itself; `turn` turns queries and keys."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x, memory=None, causal=False, turn=lambda heads: heads):
        memory = x if memory is None else memory
        q, k, v = (
            linear(t).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear, t in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = turn(q) @ turn(k).transpose(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(causal_mask(x.shape[1], x.device), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """A block of GPT; with a memory, also of a decoder."""

    def __init__(self, feed_forward=MLP, causal=True, dropout=0.0, crossed=False):
        super().__init__()
        self.causal, self.dropout = causal, nn.Dropout(dropout)
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        if crossed:
            self.norm_crossed, self.crossed = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.feed_forward = nn.LayerNorm(WIDTH), feed_forward()

    def forward(self, x, memory=None):
        x = x + self.dropout(self.attention(self.norm1(x), causal=self.causal))
        if memory is not None:
            x = x + self.crossed(self.norm_crossed(x), memory)
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class Embedding(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.dropout(self.tokens(ids) + self.positions(places))


class GPT(nn.Module):
    """The head's weight is that of the tokens: the first stage and the last one read it."""

    def __init__(self, dropout=0.0, feed_forward=MLP):
        super().__init__()
        self.embedding = Embedding(dropout)
        self.blocks = nn.ModuleList(Block(feed_forward, dropout=dropout) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embedding.tokens.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """A mixture of experts: each token goes to two of them, by weights that add up to 1."""

    def __init__(self, count=4, chosen=2):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(WIDTH, count, bias=False)
        self.experts = nn.ModuleList(MLP() for _ in range(count))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        share = (F.one_hot(chosen, len(self.experts)) * weights.unsqueeze(-1)).sum(-2)
        return sum(e(x) * share[..., i, None] for i, e in enumerate(self.experts))


class LlamaBlock(nn.Module):
    """RMS norms, rotary positions, SwiGLU."""

    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(WIDTH), Attention()
        self.norm2 = nn.RMSNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        def turn(heads):
            first, second = heads.chunk(2, -1)
            return heads * cos + torch.cat((-second, first), -1) * sin

        x = x + self.attention(self.norm1(x), causal=True, turn=turn)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """All blocks read the same two buffers; nothing is tied."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        size = WIDTH // HEADS
        angles = torch.outer(torch.arange(CONTEXT), 10.0 ** -torch.arange(0, 1, 2 / size))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())
        self.layers = nn.ModuleList(LlamaBlock() for _ in range(4))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


class Translator(nn.Module):
    """An encoder and a decoder: each block of the decoder reads what the encoder made."""

    def __init__(self):
        super().__init__()
        self.embedding = Embedding()
        self.encoder = nn.ModuleList(Block(causal=False) for _ in range(2))
        self.encoder_norm = nn.LayerNorm(WIDTH)
        self.decoder = nn.ModuleList(Block(crossed=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, source, target):
        memory, y = self.embedding(source), self.embedding(target)
        for block in self.encoder:
            memory = block(memory)
        memory = self.encoder_norm(memory)
        for block in self.decoder:
            y = block(y, memory)
        return self.head(self.norm(y))
