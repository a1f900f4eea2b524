# SPDX-License-Identifier: Apache-2.0
"""The networks whose inference is timed, in plain PyTorch, and what they are given."""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, INNER, LAYERS = 30522, 768, 12, 3072, 12  # of BERT-base
MLP = (784, 1024, 1024, 10)


class Layer(nn.Module):
    """A layer of BERT, which norms after each half."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norms[0](x + self.out(mixed))
        return self.norms[1](x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    """BERT-base with its pooler; all tokens are of one segment, and none is padding.

    Source: J. Devlin et al., BERT, arXiv:1810.04805.
    """

    def __init__(self, layers=LAYERS, sequence=512):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(sequence, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids):
        x = self.norm(self.words(ids) + self.places.weight + self.segments.weight[0])
        for layer in self.layers:
            x = layer(x)
        return self.pooler(x[:, 0]).tanh()


def mlp(widths=MLP):
    """Linear layers with ReLU between them."""
    pairs = zip(widths, widths[1:], strict=False)
    layers = [layer for pair in pairs for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def network(name, batch, sequence, layers):
    """A network as it begins, and a batch for it."""
    torch.manual_seed(0)
    if name == "mlp":
        return mlp().eval(), torch.randn(batch, MLP[0])
    return Bert(layers, sequence).eval(), torch.randint(VOCABULARY, (batch, sequence))
