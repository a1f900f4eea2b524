# SPDX-License-Identifier: Apache-2.0
"""Networks that are small enough for an FPGA, and many ops at once."""

import itertools

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Of a transformer: attention of two heads and an MLP, each after a norm."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = mlp(width, 2 * width, width, of=nn.GELU)

    def forward(self, x):
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


def mlp(*widths, of=nn.ReLU):
    layers = itertools.chain(*((nn.Linear(a, b), of()) for a, b in itertools.pairwise(widths)))
    return nn.Sequential(*list(layers)[:-1])


def image_classes(pool, norm):
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1),
        norm,
        nn.ReLU(),
        pool,
        nn.Conv2d(8, 4, 3, stride=2, groups=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 2 * 2, 5),
    )


NETWORKS = {
    "one layer": (lambda: nn.Linear(8, 4), (4, 8)),
    "relu": (lambda: mlp(16, 32, 8), (4, 16)),
    "one row": (lambda: mlp(24, 48, 3), (1, 24)),
    "wide": (lambda: mlp(8, 96, 10), (2, 8)),
    "deep, tanh": (lambda: mlp(8, 12, 12, 12, 4, of=nn.Tanh), (4, 8)),
    "gelu": (lambda: mlp(16, 24, 8, of=nn.GELU), (4, 16)),
    "silu": (lambda: mlp(16, 24, 8, of=nn.SiLU), (4, 16)),
    "sigmoid, classes": (
        lambda: nn.Sequential(mlp(12, 16, 6, of=nn.Sigmoid), nn.Softmax(-1)),
        (4, 12),
    ),
    "norm": (lambda: nn.Sequential(nn.Linear(12, 20), nn.LayerNorm(20), nn.ELU()), (6, 12)),
    "images, largest": (lambda: image_classes(nn.MaxPool2d(2), nn.BatchNorm2d(8)), (2, 2, 12, 12)),
    "images, means": (lambda: image_classes(nn.AvgPool2d(2), nn.Identity()), (1, 2, 12, 12)),
    "transformer": (Block, (1, 6, 16)),
}


class Ops(nn.Module):
    """Many ops, each with a result of its own."""

    def __init__(self, ops):
        super().__init__()
        self.ops = ops

    def forward(self, *tensors):
        return tuple(op(*tensors) for op in self.ops.values())


# Of x, y: (4, 6), p > 0 and n of integers below 4; what differs by rounding alone is left out.
OPS = {
    "add": lambda x, y, p, n: x + y,
    "sub": lambda x, y, p, n: x.sub(y, alpha=2),
    "mul": lambda x, y, p, n: x * y,
    "div": lambda x, y, p, n: x / p,
    "addcmul": lambda x, y, p, n: torch.addcmul(x, y, p, value=0.5),
    "neg": lambda x, y, p, n: -x,
    "abs": lambda x, y, p, n: x.abs(),
    "sign": lambda x, y, p, n: x.sign(),
    "square": lambda x, y, p, n: x.square(),
    "reciprocal": lambda x, y, p, n: p.reciprocal(),
    "maximum": lambda x, y, p, n: torch.maximum(x, y),
    "minimum": lambda x, y, p, n: torch.minimum(x, y),
    "clamp": lambda x, y, p, n: x.clamp(-0.5, 0.75),
    "eq": lambda x, y, p, n: n == 2,
    "lt": lambda x, y, p, n: x < 0.25,
    "logical_and": lambda x, y, p, n: (x > 0) & ~(y >= 0.5),
    "where": lambda x, y, p, n: torch.where(x > y, x, y - 1),
    "relu": lambda x, y, p, n: x.relu(),
    "leaky_relu": lambda x, y, p, n: functional.leaky_relu(x, 0.125),
    "hardtanh": lambda x, y, p, n: functional.hardtanh(x),
    "hardswish": lambda x, y, p, n: functional.hardswish(x),
    "exp": lambda x, y, p, n: x.exp(),
    "log": lambda x, y, p, n: p.log(),
    "log1p": lambda x, y, p, n: p.log1p(),
    "sqrt": lambda x, y, p, n: p.sqrt(),
    "rsqrt": lambda x, y, p, n: p.rsqrt(),
    "pow": lambda x, y, p, n: p**1.5,
    "sin": lambda x, y, p, n: x.sin(),
    "cos": lambda x, y, p, n: x.cos(),
    "tanh": lambda x, y, p, n: x.tanh(),
    "erf": lambda x, y, p, n: x.erf(),
    "sigmoid": lambda x, y, p, n: x.sigmoid(),
    "softplus": lambda x, y, p, n: functional.softplus(x),
    "gelu": lambda x, y, p, n: functional.gelu(x),
    "gelu, tanh": lambda x, y, p, n: functional.gelu(x, approximate="tanh"),
    "silu": lambda x, y, p, n: functional.silu(x),
    "floor": lambda x, y, p, n: (3 * n - 0.5).floor(),
    "ceil": lambda x, y, p, n: (3 * n - 0.5).ceil(),
    "round": lambda x, y, p, n: (n / 2).round(),
    "trunc": lambda x, y, p, n: (0.75 - n).trunc(),
    "to integers": lambda x, y, p, n: (2.75 - n).int() + n,
    "to floats": lambda x, y, p, n: n.float() + (n > 1).float(),
    "expand": lambda x, y, p, n: x[:, :1] + y[1],
    "view": lambda x, y, p, n: x.view(3, 8),
    "permute": lambda x, y, p, n: x.view(2, 2, 6).permute(2, 0, 1),
    "t": lambda x, y, p, n: x.t(),
    "slice": lambda x, y, p, n: x[1:, 1:5:2],
    "select": lambda x, y, p, n: x[:, -2],
    "flip": lambda x, y, p, n: x.flip(1),
    "cat": lambda x, y, p, n: torch.cat([x, y, x], 1),
    "stack": lambda x, y, p, n: torch.stack([x, y]),
    "pad": lambda x, y, p, n: functional.pad(x, (1, 2, 0, -1), value=0.5),
    "repeat": lambda x, y, p, n: x.repeat(2, 1),
    "tril": lambda x, y, p, n: x.tril(),
    "diagonal": lambda x, y, p, n: x[:, :4] * torch.eye(4),
    "gather": lambda x, y, p, n: x.gather(1, n.long()),
    "rows": lambda x, y, p, n: x[n[:, 0].long()],
    "sum": lambda x, y, p, n: x.sum(),
    "sum of columns": lambda x, y, p, n: x.sum(0),
    "sum of integers": lambda x, y, p, n: n.sum(1),
    "mean": lambda x, y, p, n: x.mean(1),
    "prod": lambda x, y, p, n: x.prod(1),
    "var": lambda x, y, p, n: x.var(1),
    "std": lambda x, y, p, n: x.std(0, correction=0),
    "amax": lambda x, y, p, n: x.amax(1),
    "amin": lambda x, y, p, n: x.amin(0),
    "max": lambda x, y, p, n: x.max(1)[0],
    "place of max": lambda x, y, p, n: x.max(1)[1],
    "argmin": lambda x, y, p, n: x.argmin(),
    "cumsum": lambda x, y, p, n: x.cumsum(1),
    "norm": lambda x, y, p, n: x.norm(),
    "softmax": lambda x, y, p, n: x.softmax(0),
    "log_softmax": lambda x, y, p, n: x.log_softmax(1),
    "layer_norm": lambda x, y, p, n: functional.layer_norm(x, (6,)),
    "mm": lambda x, y, p, n: x @ y.t(),
    "bmm": lambda x, y, p, n: x.view(2, 2, 6) @ y.view(2, 6, 2),
    "mv": lambda x, y, p, n: x @ y[0],
    "dot": lambda x, y, p, n: torch.dot(x[0], y[1]),
    "addmm": lambda x, y, p, n: torch.addmm(p[:, :4], x, y.t(), beta=0.5),
    "linear": lambda x, y, p, n: functional.linear(x, y, p[:, 0]),
    "conv1d": lambda x, y, p, n: functional.conv1d(x.view(1, 4, 6), y.view(2, 4, 3), padding=1),
    "conv2d": lambda x, y, p, n: functional.conv2d(
        x.view(1, 2, 3, 4), y.view(6, 1, 2, 2), p.flatten()[:6], 2, 1, groups=2
    ),
    "dilated": lambda x, y, p, n: functional.conv2d(
        x.view(2, 1, 3, 4), y.view(6, 1, 2, 2), dilation=(1, 2)
    ),
    "max_pool2d": lambda x, y, p, n: functional.max_pool2d(x.view(1, 2, 3, 4), 2, 1, 1),
    "avg_pool2d": lambda x, y, p, n: functional.avg_pool2d(
        x.view(1, 2, 3, 4), 2, 1, 1, count_include_pad=False
    ),
    "attention": lambda x, y, p, n: functional.scaled_dot_product_attention(
        x.view(1, 2, 2, 6), y.view(1, 2, 2, 6), p.view(1, 2, 2, 6)
    ),
}


def of_ops():
    """What OPS are called with."""
    torch.manual_seed(1)
    return [
        torch.randn(4, 6),
        torch.randn(4, 6),
        torch.rand(4, 6) * 2 + 0.5,
        torch.randint(0, 4, (4, 6), dtype=torch.int32),
    ]


# Functions of functions.h, as C++ has them.
FUNCTIONS = {
    **{f: f"std::{f}(x)" for f in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")},
    **{f: f"std::{f}(x)" for f in ("sqrt", "tanh", "erf", "erfc", "sin", "cos")},
    **{f: f"std::{f}(x)" for f in ("floor", "ceil", "trunc")},
    "rsqrt": "1 / std::sqrt(x)",
    "round": "std::nearbyint(x)",
    "abs": "std::fabs(x)",
}


def fixed_program():
    """C++ that checks own_fixed.h, and tells errors of functions in quanta, over all numbers."""
    rows = "\n".join(
        f'  largest("{name}", {name}_of<N>, [](double x) {{ return {of}; }});'
        for name, of in FUNCTIONS.items()
    )
    return _FIXED_PROGRAM.replace("ROWS", rows)


_FIXED_PROGRAM = """
#include <cassert>
#include <cstdio>
#include "functions.h"
typedef ap_fixed<16, 6, AP_RND, AP_SAT> N;

template <class Of, class Known>
void largest(const char* name, Of of, Known known) {
  double error = 0;
  for (int raw = -32768; raw < 32768; ++raw) {
    double wanted = known(raw / 1024.0);
    if (wanted != wanted) continue;
    wanted = std::fmin(std::fmax(wanted, -32.0), 32 - 1 / 1024.0);
    error = std::fmax(error, 1024 * std::fabs(of(N(raw / 1024.0)).to_double() - wanted));
  }
  std::printf("%s %g\\n", name, error);
}

int main() {
  typedef ap_fixed<8, 4, AP_RND, AP_SAT> R;
  typedef ap_fixed<8, 4> T;
  assert(R(0.03125).to_double() == 0.0625 && R(-0.03125).to_double() == 0);
  assert(T(0.05).to_double() == 0 && T(-0.05).to_double() == -0.0625);
  assert(R(9.0).to_double() == 7.9375 && R(-9.0).to_double() == -8);
  assert(T(9.0).to_double() == -7 && T(-9.0).to_double() == 7);
  assert(R(R(7.0) + R(7.0)).to_double() == 7.9375 && N(R(7.0) + R(7.0)).to_double() == 14);
  assert(N(R(0.0625) * R(0.0625)).to_double() == 0.00390625);
  assert(T(R(1.5) * R(-0.0625)).to_double() == -0.125);
  assert(N(R(7.0) / R(2.0)).to_double() == 3.5 && N(R(-1.0) / R(3.0)).to_double() == -0.3125);
  assert(R(-7.5).to_int() == -7 && R(1.5) < 2 && R(1.5) > T(1.4375) && -R(-8) == R(7.0) + 1);
  assert(divide_of<N>(N(1.0), N(3.0)).to_double() == 341 / 1024.0);
ROWS
}
"""
