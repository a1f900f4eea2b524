# SPDX-License-Identifier: Apache-2.0
"""The core ops that look up, order and move, layers and training steps; see op_bounds.py."""

import torch
import torch.nn.functional as F
from op_bounds import Op, Part
from op_rows import SAME, unary

LACKED = "rows that another device has"


def clipped(p, q):
    parameters = [torch.nn.Parameter(torch.zeros_like(t)) for t in (p, q)]
    for parameter, gradient in zip(parameters, (p, q), strict=True):
        parameter.grad = gradient
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    return [parameter.grad for parameter in parameters]


def stepped(p, g):
    p.requires_grad_()
    p.grad = g
    torch.optim.AdamW([p], lr=1e-3, foreach=False).step()
    return p


def lookups():
    ids = "indices are gathered where they are fewer; rows of other devices are 0 in a sum"
    yield Op(
        "embedding",
        lambda w, i: F.embedding(i, w),
        {"w": "vd", "i": "bs"},
        (Part("w:vd i:bs -> y:bsd", ids),),
        integers="i",
        trained="w",
        gradients=(Part("i:bs -> w:vd", "the indices, or the sum of tables"),),
    )
    yield Op(
        "gather",
        lambda x, i: x.gather(1, i),
        {"x": "rc", "i": "rk"},
        (Part("x:rc i:rk -> y:rk", ids),),
        integers="i",
        trained="x",
        gradients=(Part("i:rk -> x:rc", "the indices, or the sum"),),
        sizes={"k": 12},
    )
    yield Op(
        "scatter_add",
        lambda x, i, s: x.scatter_add(1, i, s),
        {"x": "rc", "i": "rk", "s": "rk"},
        (Part("x:rc i:rk s:rk -> y:rc", "every device writes what falls on it"),),
        integers="i",
        trained="xs",
        gradients=(Part("-> x:rc"), Part("i:rk -> s:rk", "the indices")),
        sizes={"k": 12},
    )
    yield Op(
        "index_select",
        lambda x, i: x.index_select(0, i),
        {"x": "rc", "i": "k"},
        (Part("x:rc i:k -> y:kc", ids),),
        integers="i",
        trained="x",
        gradients=(Part("i:k -> x:rc", "the indices, or the sum"),),
        sizes={"k": 12},
    )
    yield Op(
        "index_add",
        lambda x, i, s: x.index_add(0, i, s),
        {"x": "rc", "i": "k", "s": "kc"},
        (Part("x:rc i:k s:kc -> y:rc", "every device writes what falls on it"),),
        integers="i",
        trained="xs",
        gradients=(Part("-> x:rc"), Part("i:k -> s:kc", "the indices")),
        sizes={"k": 12},
    )


def orders():
    yield unary(
        "cumsum",
        lambda x: x.cumsum(1),
        why="every part's total, to every device",
        inside={"c": "gather(n*r)"},
    )
    yield unary(
        "sort",
        lambda x: x.sort(1),
        why="another dim is cut meanwhile",
        result="y:rc i:rc",
        whole="c",
        integers="i",
        gradients=(Part(SAME, "there and back", whole="c"),),
    )
    yield unary(
        "topk",
        lambda x: x.topk(4, 1),
        why="every part's 4 candidates, with their indices",
        inside={"c": "3*gather(n*4*r)"},
        result="y:rk i:rk",
        integers="i",
        sizes={"c": 96, "k": 4},
        back={"c": "3*gather(n*4*r)"},
        back_why="the same",
    )


def joins_and_parts():
    def joined(cut):
        rows = ",".join(f"({'r' if cut[name] == 'r' else 0}, 0, r)" for name in "xz")
        return (Part("x:rc z:rc -> y:pc", LACKED, {"r": f"c*lacked({rows})"}, "p"),)

    two = {"operands": {"x": "rc", "z": "rc"}, "trained": "xz"}
    free = (Part("-> x:rc"), Part("-> z:rc"))
    yield Op(
        "cat", lambda x, z: torch.cat((x, z)), parts=joined, sizes={"p": 48}, gradients=free, **two
    )
    stacked = (Part("x:rc z:rc -> y:src", "one moves to the other's cut"),)
    yield Op(
        "stack",
        lambda x, z: torch.stack((x, z)),
        parts=stacked,
        sizes={"s": 2},
        gradients=free,
        **two,
    )
    yield unary(
        "chunk · 2",
        lambda x: tuple(y * 2 for y in x.chunk(2)),
        why=LACKED,
        result="y:pc z:pc",
        inside={"r": "c*(lacked((r, 0, p)) + lacked((r, p, p)))"},
        sizes={"p": 12},
        whole="p",
    )


def views():
    yield Op(
        "merging view · 2",
        lambda x: x.flatten(0, 1) * 2,
        {"x": "abc"},
        (Part("x:abc -> y:ac", "a minor dim's cut has no place in the merged one", whole="b"),),
        trained="x",
        gradients=(Part("x:abc -> x:abc"),),
    )
    yield Op(
        "splitting view · 2",
        lambda x: x.unflatten(0, (12, 2)) * 2,
        {"x": "rc"},
        (Part("x:rc -> y:rbc"),),
        trained="x",
        gradients=(Part(SAME),),
    )
    yield unary("transpose · 2", lambda x: x.t() * 2, result="y:cr")


def movements():
    yield unary("flip", lambda x: x.flip(0), why="a block, or another dim", inside={"r": "r*c/n"})
    yield unary("roll", lambda x: x.roll(1, 0), why="a row", inside={"r": "c"})
    yield unary(
        "pad",
        lambda x: F.pad(x, (0, 0, 1, 1)),
        why=LACKED,
        result="y:pc",
        inside={"r": "c*lacked((0, 0, 1), (r, 0, r), (0, 0, 1))"},
        sizes={"p": 26},
        whole="p",
    )
    yield unary(
        "slice · 2",
        lambda x: x[6:18] * 2,
        why=LACKED,
        result="y:pc",
        inside={"r": "c*lacked((r, 6, 12))"},
        sizes={"p": 12},
        whole="p",
    )


def layers():
    yield Op(
        "attention",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        {"q": "bhqe", "k": "bhke", "v": "bhke"},
        (
            Part(
                "q:bhqe k:bhke v:bhke -> y:bhqe",
                "heads are cut meanwhile, or results merged by their sums",
                {"k": "reduce(b*h*q*e) + 2*reduce(b*h*q)"},
                "e",
            ),
        ),
        trained="qkv",
        gradients=(
            Part(
                "q:bhqe k:bhke v:bhke -> q:bhqe k:bhke v:bhke",
                "heads are cut meanwhile",
                whole="ek",
            ),
        ),
    )
    yield Op(
        "conv2d",
        lambda x, w: F.conv2d(x, w, padding=1),
        {"x": "bcij", "w": "ockl"},
        (
            Part(
                "x:bcij w:ockl -> y:boij",
                "rows of two neighbours",
                {"i": "2*b*c*j", "j": "2*b*c*i"},
                "kl",
            ),
        ),
        sizes={"k": 3, "l": 3},
        trained="xw",
        gradients=(
            Part(
                "w:ockl -> x:bcij",
                "gradient of x: rows of two neighbours",
                {"i": "2*b*o*j", "j": "2*b*o*i"},
                "kl",
            ),
            Part(
                "x:bcij -> w:ockl",
                "gradient of w: the narrower rows of two neighbours, and a sum",
                {"i": "2*b*c*j + reduce(o*c*k*l)", "j": "2*b*c*i + reduce(o*c*k*l)"},
                "kl",
            ),
        ),
    )


def training():
    def norm(cut):
        count = sum(letter is not None for letter in cut.values())
        return (Part("->", "a number for each tensor that is cut", fixed=f"{count}*reduce(1)"),)

    yield Op("clip_grad_norm_", clipped, {"p": "rc", "q": "rc"}, norm)
    yield Op(
        "AdamW step",
        stepped,
        {"p": "rc", "g": "rc"},
        (Part("g:rc -> p:rc", "the gradient moves to its parameter", stored=True),),
    )


def moving():
    for group in (lookups, orders, joins_and_parts, views, movements, layers, training):
        yield from group()
