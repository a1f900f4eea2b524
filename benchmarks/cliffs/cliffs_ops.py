# SPDX-License-Identifier: Apache-2.0
"""Ops outside of layers: selection, order, sums along dims, algebra, shapes, dtypes."""

import torch
import torch.nn.functional as F
from cliff_row import Rows, graded

ROWS = Rows()

CALLS = {  # name: (what, make operands, call)
    "x[x > 0].sum()": ("f32[512, 512]", lambda at: (at.rows(512, 512),), lambda x: x[x > 0].sum()),
    "nonzero": ("f32[512, 512]", lambda at: (at.rows(512, 512),), lambda x: (x > 1).nonzero()),
    "masked_fill, where, clamp": (
        "chain of 12 on f32[256, 512]",
        lambda at: (at.rows(256, 512),),
        lambda x: clamps(x),
    ),
    "sort": ("f32[256, 1024]", lambda at: (at.rows(256, 1024),), lambda x: x.sort(-1)[0]),
    "argsort and gather": (
        "f32[256, 1024]",
        lambda at: (at.rows(256, 1024),),
        lambda x: x.gather(1, x.argsort(-1)),
    ),
    "topk": ("8 of f32[256, 4096]", lambda at: (at.rows(256, 4096),), lambda x: x.topk(8)[0]),
    "unique": ("65,536 ints below 1,000", lambda at: (at.ints(1000, 65536),), lambda x: x.unique()),
    "bincount": (
        "262,144 ints below 1,000",
        lambda at: (at.ints(1000, 1 << 18),),
        lambda x: x.bincount(),
    ),
    "median and quantile": (
        "f32[64, 4096]",
        lambda at: (at.rows(64, 4096),),
        lambda x: x.median(1)[0] + x.quantile(0.9, 1),
    ),
    "cumsum and cumprod": (
        "f32[512, 512]",
        lambda at: (at.rows(512, 512),),
        lambda x: x.cumsum(1) + x.tanh().cumprod(1),
    ),
    "logcumsumexp, logsumexp": (
        "f32[256, 512]",
        lambda at: (at.rows(256, 512),),
        lambda x: x.logcumsumexp(1) + x.logsumexp(1, True),
    ),
    "einsum of three": (
        "32 x 64 x 64",
        lambda at: (at.rows(32, 64, 64), at.whole(64, 64), at.rows(32, 64, 64)),
        lambda a, b, c: torch.einsum("bij,jk,bkl->bil", a, b, c),
    ),
    "gather and scatter_add": (
        "f32[512, 512]",
        lambda at: (at.rows(512, 512), at.ints(512, 512, 512)),
        lambda x, i: torch.zeros_like(x).scatter_add(1, i, x.gather(1, i)),
    ),
    "fft": (
        "rfft, product, irfft of f32[256, 1024]",
        lambda at: (at.rows(256, 1024),),
        lambda x: torch.fft.irfft(torch.fft.rfft(x).square(), 1024),
    ),
    "complex numbers": (
        "c64[256, 512]",
        lambda at: (at.rows(256, 1024),),
        lambda x: (torch.view_as_complex(x.unflatten(1, (512, 2))) * 1j).exp().abs(),
    ),
    "svd": ("16 of 48 x 48", lambda at: (at.rows(16, 48, 48),), lambda x: torch.linalg.svdvals(x)),
    "solve": (
        "16 of 64 x 64",
        lambda at: (at.rows(16, 64, 64), at.rows(16, 64, 8)),
        lambda a, b: torch.linalg.solve(a, b),
    ),
    "cholesky": (
        "16 of 96 x 96",
        lambda at: (at.rows(16, 96, 96),),
        lambda x: torch.linalg.cholesky(x @ x.mT + 96 * torch.eye(96, device=x.device)),
    ),
    "inverse and determinant": (
        "16 of 64 x 64",
        lambda at: (at.rows(16, 64, 64),),
        lambda x: torch.linalg.inv(x / 8 + 2 * torch.eye(64, device=x.device)),
    ),
    "interpolation, bilinear": (
        "8 x 8 of 32 x 32 to 64 x 64",
        lambda at: (at.rows(8, 8, 32, 32),),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    ),
    "grid_sample": (
        "8 x 8 of 32 x 32",
        lambda at: (at.rows(8, 8, 32, 32), at.rows(8, 32, 32, 2)),
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
    ),
    "pooling, maximum and mean": (
        "16 x 16 of 64 x 64",
        lambda at: (at.rows(16, 16, 64, 64),),
        lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2),
    ),
    "unfold": ("8 x 8 of 32 x 32", lambda at: (at.rows(8, 8, 32, 32),), lambda x: F.unfold(x, 3)),
    "integer arithmetic": (
        "i64[256, 1024]",
        lambda at: (at.ints(1000, 256, 1024),),
        lambda x: ((x * 7 + 3) % 11 // 2) ^ (x >> 1),
    ),
    "cat, stack and split of many": (
        "64 of f32[64, 64]",
        lambda at: tuple(at.rows(64, 64) for _ in range(64)),
        lambda *xs: torch.stack(torch.cat(xs, 1).split(64, 1)).sum(0),
    ),
    "broadcasting": (
        "f32[512, 1, 16] - f32[256, 16], squared distances",
        lambda at: (at.rows(512, 16), at.whole(256, 16)),
        lambda a, b: (a[:, None] - b).square().sum(-1).min(1)[0],
    ),
    "cdist and argmin": (
        "2,048 x 64 points of 16",
        lambda at: (at.rows(2048, 16), at.whole(64, 16)),
        lambda a, b: torch.cdist(a, b).argmin(1),
    ),
    "many small ops": ("1,000 on f32[64, 64]", lambda at: (at.rows(64, 64),), lambda x: small(x)),
    "pointwise chain": ("20 on f32[512, 512]", lambda at: (at.rows(512, 512),), lambda x: chain(x)),
    "permutes and copies": (
        "f32[32, 64, 128]",
        lambda at: (at.rows(32, 64, 128),),
        lambda x: x.permute(2, 0, 1).contiguous().flip(0).roll(3, 1).transpose(0, 1).contiguous(),
    ),
    "one_hot, mean of classes": (
        "4,096 rows of 64, 32 classes",
        lambda at: (at.rows(4096, 64), at.ints(32, 4096)),
        lambda x, y: F.one_hot(y, 32).float().t() @ x,
    ),
    "stencil by slices": (
        "32 steps on f32[256, 256]",
        lambda at: (at.rows(256, 256),),
        lambda x: heat(x),
    ),
    "mean, var, norm, max": (
        "f32[512, 512]",
        lambda at: (at.rows(512, 512),),
        lambda x: x.mean(0) + x.var(0) + x.norm(dim=0) + x.amax(0),
    ),
    "matmul in float64": (
        "256 x 256",
        lambda at: (at.rows(256, 256),),
        lambda x: x.double() @ x.double(),
    ),
    "matmul in bfloat16": ("256 x 256", lambda at: (at.rows(256, 256),), lambda x: halves(x)),
    "bmm": ("64 of 64 x 64", lambda at: (at.rows(64, 64, 64),), lambda x: torch.bmm(x, x)),
    "searchsorted and bucketize": (
        "65,536 in 1,000",
        lambda at: (at.rows(65536), at.put(torch.linspace(-3, 3, 1000))),
        lambda x, edges: torch.bucketize(x, edges),
    ),
}


def clamps(x):
    for i in range(4):
        x = torch.where(x > i, x * 0.9, x).clamp(-3, 3).masked_fill(x < -2.5, 0.5)
    return x


def small(x):
    for _ in range(500):
        x = x * 0.99 + 0.01
    return x


def chain(x):
    for _ in range(5):
        x = torch.sigmoid(torch.tanh(x) * 1.1 + 0.1)
    return x


def heat(x):
    for _ in range(32):
        inner = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        x = F.pad(inner / 4, (1, 1, 1, 1))
    return x


def halves(x):
    return (x.bfloat16() @ x.bfloat16()).float()


for name, (what, operands, call) in CALLS.items():

    @ROWS.add(name, what)
    def called(at, operands=operands, call=call):
        given = operands(at)
        return lambda: call(*given)


GRADED = {
    "gather": lambda x, i: x.gather(1, i),
    "x[i, j]": lambda x, i: x[i[:, 0], i[:, 1]],
    "cumsum": lambda x, i: x.cumsum(1),
    "max": lambda x, i: x.max(1)[0],
    "sort": lambda x, i: x.sort(1)[0],
    "x[a:b] of many": lambda x, i: torch.cat([x[k : k + 64] for k in range(0, 512, 32)]),
}
for name, call in GRADED.items():

    @ROWS.add(f"{name}, gradient", "f32[512, 512]")
    def graded_call(at, call=call):
        x, i = at.rows(512, 512, grad=True), at.ints(512, 512, 512)
        return graded(lambda: call(x, i).square().sum(), x)
