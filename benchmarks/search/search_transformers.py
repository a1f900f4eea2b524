# SPDX-License-Identifier: Apache-2.0
"""Transformers that a strategy is searched for: decoders, encoders, both, mixtures of experts."""

import torch
import torch.nn.functional as F
from search_net import Net, floats, whole_numbers
from torch import nn


class Attention(nn.Module):
    """Of a sequence with itself, or with another one; several heads may share keys and values."""

    def __init__(self, width, heads, kv_heads=None, causal=False):
        super().__init__()
        self.size, self.causal = width // heads, causal
        inner = (kv_heads or heads) * self.size
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = nn.Linear(width, inner), nn.Linear(width, inner)

    def forward(self, x, other=None):
        other = x if other is None else other
        q, k, v = (
            linear(source).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for linear, source in ((self.q, x), (self.k, other), (self.v, other))
        )
        gqa = q.shape[1] != k.shape[1]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=gqa)
        return self.out(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each token goes to its best experts, as far as these have room (GShard, arXiv:2006.16668)."""

    def __init__(self, width, hidden, experts, choices):
        super().__init__()
        self.router, self.choices = nn.Linear(width, experts, bias=False), choices
        self.up = nn.Parameter(torch.empty(experts, width, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, width))

    def forward(self, x):
        experts, room = self.up.shape[0], 2 * self.choices * x.shape[1] // self.up.shape[0]
        weight, expert = self.router(x).softmax(-1).topk(self.choices, -1)
        chosen = F.one_hot(expert, experts).flatten(1, 2)
        place = (chosen.cumsum(1) - 1).mul(chosen).sum(-1)
        queue = F.one_hot(place.clamp(max=room), room + 1)[..., :room]
        mask = torch.einsum("bte,btc->btec", chosen.to(x.dtype), queue.to(x.dtype))
        mask = mask.unflatten(1, (-1, self.choices))
        sent = torch.einsum("bsec,bsw->ebcw", mask.sum(2), x)
        hidden = F.gelu(torch.einsum("ebcw,ewh->ebch", sent, self.up))
        made = torch.einsum("ebch,ehw->ebcw", hidden, self.down)
        return torch.einsum("bsec,ebcw->bsw", (mask * weight[..., None, None]).sum(2), made)


class Block(nn.Module):
    def __init__(self, width, attention, mlp, norm=nn.LayerNorm, cross=None):
        super().__init__()
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attention, self.mlp = attention, mlp
        if cross is not None:
            self.norm3, self.cross = norm(width), cross

    def forward(self, x, other=None):
        x = x + self.attention(self.norm1(x))
        if other is not None:
            x = x + self.cross(self.norm3(x), other)
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    """Tokens and places, blocks, a norm and a head, which may share the table of the tokens."""

    def __init__(self, vocab, length, width, blocks, norm=nn.LayerNorm, tied=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = norm(width), nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Classifier(nn.Module):
    """An encoder whose first token tells the class."""

    def __init__(self, vocab, width, blocks, classes):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, classes)

    def forward(self, ids):
        return self.head(self.blocks(self.tokens(ids))[:, 0])


class EncoderDecoder(nn.Module):
    """Every block of the decoder reads what the encoder made (arXiv:1706.03762)."""

    def __init__(self, vocab, width, encoder, decoder):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.head = nn.Linear(width, vocab)

    def forward(self, source, target):
        x, y = self.tokens(source), self.tokens(target)
        for block in self.encoder:
            x = block(x)
        for block in self.decoder:
            y = block(y, x)
        return self.head(y)


def gpt_blocks(layers, width, heads, causal=True):
    return [
        Block(width, Attention(width, heads, causal=causal), Mlp(width, 4 * width))
        for _ in range(layers)
    ]


def gpt(vocab, length, width, heads, layers, **options):
    return Language(vocab, length, width, gpt_blocks(layers, width, heads), **options)


def llama(vocab, length, width, heads, kv_heads, hidden, layers):
    blocks = [
        Block(
            width,
            Attention(width, heads, kv_heads, causal=True),
            SwiGlu(width, hidden),
            nn.RMSNorm,
        )
        for _ in range(layers)
    ]
    return Language(vocab, length, width, blocks, nn.RMSNorm)


def mixture(vocab, length, width, experts, choices, layers, every=1):
    """Every so many-th block has experts, the others one MLP."""
    blocks = [
        Block(
            width,
            Attention(width, width // 64, causal=True),
            Experts(width, 4 * width, experts, choices)
            if i % every == 0
            else Mlp(width, 4 * width),
        )
        for i in range(layers)
    ]
    return Language(vocab, length, width, blocks)


def translator(vocab, width, encoder, decoder):
    heads = width // 64
    return EncoderDecoder(
        vocab,
        width,
        gpt_blocks(encoder, width, heads, causal=False),
        [
            Block(
                width,
                Attention(width, heads, causal=True),
                Mlp(width, 4 * width),
                cross=Attention(width, heads),
            )
            for _ in range(decoder)
        ],
    )


def classifier(vocab, width, layers, classes):
    return Classifier(vocab, width, gpt_blocks(layers, width, width // 64, False), classes)


def next_tokens(model, ids):
    return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


def classes(model, batch):
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels)


def translation(model, batch):
    return F.cross_entropy(model(*batch).flatten(0, 1), batch[1].flatten())


def language(make, length, samples=16):
    return Net(make, lambda n: whole_numbers(n, length), next_tokens, samples)


def labelled(make, length, samples=16):
    return Net(make, lambda n: (whole_numbers(n, length), whole_numbers(n)), classes, samples)


def translated(make, lengths, samples=16):
    return Net(make, lambda n: tuple(whole_numbers(n, t) for t in lengths), translation, samples)


def scored(make, *shape, samples=16):
    """Inputs of numbers, and a class for each."""
    return Net(make, lambda n: (floats(n, *shape), whole_numbers(n)), classes, samples)


TRANSFORMERS = {
    "gpt, tiny": language(lambda: gpt(64, 16, 64, 4, 2), 16),
    "gpt, 2 layers of 1024": language(lambda: gpt(8192, 512, 1024, 16, 2), 512),
    "gpt, 4 layers of 256": language(lambda: gpt(1024, 128, 256, 4, 4), 128, 32),
    "gpt, 8 layers of 512": language(lambda: gpt(512, 64, 512, 8, 8), 64),
    "gpt, wide and short": language(lambda: gpt(4096, 64, 8192, 64, 2), 64, 8),
    "gpt, long sequences": language(lambda: gpt(256, 4096, 512, 8, 3), 4096, 8),
    "gpt, tied": language(lambda: gpt(32768, 256, 768, 12, 3, tied=True), 256),
    "llama, grouped keys": language(lambda: llama(4096, 256, 1024, 16, 4, 2816, 3), 256),
    "llama, one key": language(lambda: llama(512, 128, 2048, 16, 1, 5632, 4), 128),
    "mixture, 8 experts, 1 choice": language(lambda: mixture(512, 64, 512, 8, 1, 2), 64),
    "mixture, 16 experts, 2 choices": language(lambda: mixture(512, 128, 256, 16, 2, 4, 2), 128),
    "encoder-decoder": translated(lambda: translator(4096, 512, 3, 3), (256, 256)),
    "encoder-decoder, long source": translated(lambda: translator(256, 256, 2, 4), (1024, 64)),
    "classifier of texts": labelled(lambda: classifier(2048, 384, 4, 8), 128, 32),
    "classifier, huge vocabulary": labelled(lambda: classifier(2**20, 256, 2, 8), 64),
}
