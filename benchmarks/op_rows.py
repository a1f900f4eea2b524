# SPDX-License-Identifier: Apache-2.0
"""The core ops that compute: letters of their dims, what must cross inside; see op_bounds.py."""

import torch
import torch.nn.functional as F
from op_bounds import Op, Part

SAME = "x:rc -> x:rc"


def pair(a, b, result):
    """Forward, and both gradients, of a product of a and b."""
    forward = (
        Part(f"a:{a} b:{b} -> y:{result}", "the smaller of: move an operand, sum the result"),
    )
    gradients = (
        Part(f"b:{b} -> a:{a}", "gradient of a: b moves, or the sum"),
        Part(f"a:{a} -> b:{b}", "gradient of b: a moves, or the sum"),
    )
    return dict(operands={"a": a, "b": b}, parts=forward, trained="ab", gradients=gradients)


def unary(name, call, text=None, why="", inside=(), back=(), back_why="", result="y:rc", **more):
    """An op of one [r, c] tensor whose gradient, for a known cotangent, crosses `back`."""
    more = {"trained": "x", "gradients": (Part(SAME, back_why, dict(back)),)} | more
    parts = (Part(f"x:rc -> {result}", why, dict(inside), more.pop("whole", "")),)
    return Op(name, call, {"x": "rc"}, parts, **more)


def products():
    yield Op("mm", lambda a, b: a @ b, **pair("mk", "kn", "mn"))
    yield Op("bmm", torch.bmm, **pair("bmk", "bkn", "bmn"))
    scores = pair("bhqe", "bhke", "bhqk")
    yield Op("einsum · 2", lambda a, b: torch.einsum("bhqe,bhke->bhqk", a, b) * 2, **scores)
    yield Op("outer", torch.outer, **pair("m", "n", "mn"))
    for name, call, x, w in (
        ("addmm", lambda x, w, b: torch.addmm(b, x, w), "mk", "kn"),
        ("linear · 2", lambda x, w, b: F.linear(x, w, b) * 2, "bmk", "nk"),
    ):
        y = x[:-1] + "n"
        yield Op(
            name,
            call,
            {"x": x, "w": w, "b": "n"},
            (Part(f"x:{x} w:{w} b:n -> y:{y}", "the bias is added after the sum"),),
            trained="xwb",
            gradients=(
                Part(f"w:{w} -> x:{x}", "gradient of x"),
                Part(f"x:{x} -> w:{w}", "gradient of w"),
                Part("-> b:n"),
            ),
        )


def pointwise():
    yield Op("mul", torch.mul, **pair("rc", "rc", "rc"))
    yield Op(
        "gelu of a biased sum",
        lambda x, b: F.gelu(x + b),
        {"x": "rc", "b": "c"},
        (Part("x:rc b:c -> y:rc"),),
        trained="xb",
        gradients=(Part("x:rc b:c -> x:rc b:c", "the bias's gradient is a sum over rows"),),
    )
    yield Op(
        "where",
        lambda x, z: torch.where(x > 0, x, z),
        {"x": "rc", "z": "rc"},
        (Part("x:rc z:rc -> y:rc"),),
        trained="xz",
        gradients=(Part("x:rc -> x:rc z:rc", "both need to know which one was taken"),),
    )
    yield unary("dropout", lambda x: F.dropout(x, 0.5))
    yield unary("tril", torch.tril)
    yield Op(
        "one_hot",
        lambda i: F.one_hot(i, 24),
        {"i": "r"},
        (Part("i:r -> y:rc"),),
        integers="iy",
    )


def reductions():
    sums = "a partial result"
    yield unary("sum of rows", lambda x: x.sum(1), why=sums, result="y:r")
    yield unary("mean", torch.mean, why=sums, result="y:")
    yield unary(
        "amax of rows",
        lambda x: x.amax(1),
        why=sums,
        result="y:r",
        back={"c": "3*reduce(r)"},
        back_why="the maximum, and how many share it, an 8-byte number",
    )
    yield unary(
        "var of rows",
        lambda x: x.var(1),
        why="mean, then squares",
        inside={"c": "2*reduce(r)"},
        result="y:r",
        back={"c": "reduce(r)"},
        back_why="the mean",
    )
    yield unary(
        "norm",
        torch.linalg.vector_norm,
        why=sums,
        result="y:",
        back={"r": "reduce(1)", "c": "reduce(1)"},
        back_why="the norm",
    )
    yield unary(
        "logsumexp of rows",
        lambda x: x.logsumexp(1),
        why="maximum, sum",
        inside={"c": "2*reduce(r)"},
        result="y:r",
        back={"c": "2*reduce(r)"},
        back_why="maximum, sum",
    )
    pairs = "a value and an 8-byte index a row"
    inside = {"c": "3*reduce(r)"}
    shared = dict(why=pairs, inside=inside, back=inside, back_why=pairs, integers="i")
    yield unary("max of rows", lambda x: x.max(1), result="y:r i:r", **shared)
    yield unary("argmax", lambda x: x.argmax(1), result="i:r", trained="", **shared)


def normalisations():
    yield unary(
        "softmax",
        lambda x: x.softmax(1),
        why="maximum, sum",
        inside={"c": "2*reduce(r)"},
        back={"c": "3*reduce(r)"},
        back_why="maximum, sum, and the sum of gradient · result",
    )
    yield unary(
        "log_softmax",
        lambda x: x.log_softmax(1),
        why="maximum, sum",
        inside={"c": "2*reduce(r)"},
        back={"c": "2*reduce(r)"},
        back_why="maximum, sum",
    )
    yield Op(
        "layer_norm",
        lambda x, w, b: F.layer_norm(x, (24,), w, b),
        {"x": "rc", "w": "c", "b": "c"},
        (Part("x:rc w:c b:c -> y:rc", "mean and variance", {"c": "2*reduce(r)"}),),
        trained="xwb",
        gradients=(Part("x:rc w:c -> x:rc w:c b:c", "4 sums of a row", {"c": "4*reduce(r)"}),),
    )
    yield Op(
        "rms_norm",
        lambda x, w: F.rms_norm(x, (24,), w),
        {"x": "rc", "w": "c"},
        (Part("x:rc w:c -> y:rc", "mean square", {"c": "reduce(r)"}),),
        trained="xw",
        gradients=(Part("x:rc w:c -> x:rc w:c", "2 sums of a row", {"c": "2*reduce(r)"}),),
    )


def normalisations_of_channels():
    channels = dict.fromkeys("bij", "2*reduce(c)")
    yield Op(
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        {"x": "bcij", "w": "c", "b": "c"},
        (Part("x:bcij w:c b:c -> y:bcij", "mean and variance of a channel", channels),),
        trained="xwb",
        gradients=(
            Part(
                "x:bcij w:c -> x:bcij w:c b:c",
                "mean, variance, sums of gradient and of gradient · normal",
                dict.fromkeys("bij", "4*reduce(c)"),
            ),
        ),
    )
    yield Op(
        "group_norm",
        lambda x, w, b: F.group_norm(x, 12, w, b),
        {"x": "bcij", "w": "c", "b": "c"},
        (
            Part(
                "x:bcij w:c b:c -> y:bcij",
                "mean and variance of a group",
                dict.fromkeys("ij", "2*reduce(b*12)"),
            ),
        ),
        trained="xwb",
        gradients=(
            Part(
                "x:bcij w:c -> x:bcij w:c b:c",
                "4 sums of a group, and gradients of the parameters",
                dict.fromkeys("ij", "4*reduce(b*12) + 2*reduce(c)"),
            ),
        ),
    )


def losses():
    count = Part("t:r -> m:", "how many rows count")
    yield Op(
        "cross_entropy",
        F.cross_entropy,
        {"x": "rc", "t": "r"},
        (
            Part(
                "x:rc t:r -> y:",
                "maximum and sum of a row; the sum of the target's scores is a number",
                {"c": "2*reduce(r) + reduce(1)"},
            ),
            count,
        ),
        integers="t",
        trained="x",
        gradients=(Part("x:rc t:r -> x:rc", "maximum, sum", {"c": "2*reduce(r)"}), count),
    )
    yield Op(
        "nll_loss",
        F.nll_loss,
        {"x": "rc", "t": "r"},
        (Part("x:rc t:r -> y:", "the sum"), count),
        integers="t",
        trained="x",
        gradients=(Part("t:r -> x:rc", "the targets"), count),
    )


def maths():
    groups = (products, pointwise, reductions, normalisations, normalisations_of_channels, losses)
    for group in groups:
        yield from group()
