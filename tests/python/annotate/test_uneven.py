# SPDX-License-Identifier: Apache-2.0
"""Every size from 0 to 17 over 2, 3 and 4 devices: representative ops and every composite.

All ops of one size, kind and mesh are in one graph, so that many share the time of a plan.
"""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from composites import least_work, mesh_of
from hardware import ON_GPU
from models import assert_equal

SIZES, DEVICES = range(18), (2, 3, 4)
LAST = (None, "x")


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def indices(high, *shape, seed=0):
    return torch.randint(max(high, 1), shape, generator=torch.Generator().manual_seed(seed))


def positive(x):
    return x.abs() + 0.5


# Ops are functions of a matrix [3, n] whose dim 1 is cut.

POINTWISE = {
    "gelu": lambda x: F.gelu(x),
    "add and multiply": lambda x: x * 1.5 + x.sin(),
    "where": lambda x: torch.where(x > 0, x, x * 0.1),
    "dropped": lambda x: x.masked_fill(x < 0, 0.25),
}
REDUCTIONS = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1, keepdim=True),
    "mean of all": lambda x: x.mean(),
    "prod": lambda x: positive(x).prod(1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1, keepdim=True),
    "var": lambda x: x.var(1),
    "std and mean": lambda x: torch.std_mean(x, 1, correction=0),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, 1),
    "any": lambda x: (x.detach() > 1).any(1),
    "argmax": lambda x: x.detach().argmax(1),
    "argmin": lambda x: x.detach().argmin(),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(1, keepdim=True),
    "median": lambda x: x.median(1).values,
}
MOVEMENTS = {
    "transpose": lambda x: x.T * 2,
    "flatten": lambda x: x.reshape(-1),
    "flatten transposed": lambda x: x.T.reshape(-1),
    "slice": lambda x: x[:, 1:],
    "step": lambda x: x[:, ::2],
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "stack": lambda x: torch.stack([x, -x]),
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "expand": lambda x: x[:, None].expand(-1, 2, -1),
    "repeat": lambda x: x.repeat(1, 2),
    "tril": lambda x: x.tril(1) + x.triu(2),
}
PRODUCTS = {
    "matmul contracting": lambda x: x @ x.T,
    "matmul": lambda x: x.T @ x,
    "bmm": lambda x: torch.bmm(x[None], x.T[None]),
    "einsum": lambda x: torch.einsum("ij,kj->ikj", x, x),
    "addmm": lambda x: torch.addmm(x[:, :1], x, x.T),
}
SCANS = {
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(min(2, x.shape[1]), 1),
    "kthvalue": lambda x: x.kthvalue(max(1, x.shape[1] // 2), 1),
}
SOFTMAXES = {
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp(1),
}
NORMS = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
    "normalize": lambda x: F.normalize(x),
    "batch_norm": lambda x: F.batch_norm(x.T, None, None, training=True),
    "group_norm of channels": lambda x: F.group_norm(x.reshape(1, -1, 3), 1),
    "group_norm of space": lambda x: F.group_norm(x[None], 3),
    "group_norm of a batch": lambda x: F.group_norm(x.T.unsqueeze(1).expand(-1, 2, -1), 2),
}


def target_of(x, high, cut):
    count = x.shape[1] if cut == "batch" else x.shape[0]
    return indices(high, count).to(x.device)


def cross_entropy(cut, **options):
    """Classes are dim 1 of x, or the batch is the cut dim."""

    def of(x):
        scores = x if cut == "classes" else x.T
        target = target_of(x, scores.shape[1], cut)
        if scores.shape[0]:
            target = torch.where(torch.arange(len(target), device=x.device) == 1, -100, target)
        options_here = dict(options)
        if options_here.pop("weighted", False):
            options_here["weight"] = torch.linspace(0.5, 2, scores.shape[1], dtype=x.dtype).to(
                x.device
            )
        return F.cross_entropy(scores, target, **options_here)

    return of


LOSSES = {
    "classes": cross_entropy("classes"),
    "classes, sum": cross_entropy("classes", reduction="sum"),
    "classes, rows": cross_entropy("classes", reduction="none"),
    "classes, weights": cross_entropy("classes", weighted=True),
    "classes, smoothing": cross_entropy("classes", label_smoothing=0.2),
    "classes, weights, smoothing": cross_entropy("classes", weighted=True, label_smoothing=0.2),
    "batch": cross_entropy("batch"),
    "batch, weights": cross_entropy("batch", weighted=True),
    "batch, smoothing": cross_entropy("batch", label_smoothing=0.2),
    "probabilities": lambda x: F.cross_entropy(x, x.detach().softmax(1)),
    "mse": lambda x: F.mse_loss(x, x.detach() * 0.5),
    "smooth l1": lambda x: F.smooth_l1_loss(x, x.detach() * 0.5),
    "binary": lambda x: F.binary_cross_entropy_with_logits(x, (x.detach() > 0).double()),
}


def at_indices(x):
    return indices(x.shape[1], 3, 2).to(x.device), indices(x.shape[1], 4, seed=1).to(x.device)


INDEXING = {
    "embedding": lambda x: F.embedding(at_indices(x)[0], x.T),
    "embedding, padded": lambda x: F.embedding(at_indices(x)[0], x.T, padding_idx=0),
    "embedding of a batch": lambda x: F.embedding(
        indices(3, x.shape[1]).to(x.device), x[:, :1].expand(3, 2)
    ),
    "gather": lambda x: x.gather(1, at_indices(x)[0]),
    "index_select": lambda x: x.index_select(1, at_indices(x)[1]),
    "index": lambda x: x[:, at_indices(x)[1] - x.shape[1]],
    "scatter": lambda x: x.scatter(1, at_indices(x)[0], 1.5),
    "scatter_add": lambda x: x.scatter_add(1, at_indices(x)[0], x[:, :1].expand(3, 2) * 2),
    "index_add": lambda x: x.index_add(1, at_indices(x)[1], x[:, :1].expand(3, 4) * 2),
    "index_put": lambda x: (
        x.index_put((at_indices(x)[0][:, 0],), x.detach()[0], accumulate=True)
        if x.shape[1] > 2
        else x
    ),
}


def attention(cut, causal=False, heads=1):
    """x is [3, n]: the sequence of queries, of keys, of both, or the heads are n long."""

    def of(x):
        n = x.shape[1]
        line = torch.linspace(-1, 1, 5, dtype=x.dtype).to(x.device)
        # Dense: ATen's CPU kernel misreads one row whose heads are repeated by a stride of 0.
        long = (x.T[None, None] * line[:3]).expand(1, 2, n, 3).contiguous()
        short = (line[:, None] * line[:3]).expand(1, 2, 5, 3) * x.sum()
        if cut == "heads":
            long = x.T[None, :, None] * line[:, None]  # [1, n, 5, 3]
            return F.scaled_dot_product_attention(long, long * 2, long.sin(), is_causal=causal)
        query = long if cut in ("queries", "both") else short
        key = long if cut in ("keys", "both") else short
        return F.scaled_dot_product_attention(query, key * 2, key.sin(), is_causal=causal)

    return of


ATTENTION = {
    f"{cut}{', causal' if causal else ''}": attention(cut, causal)
    for cut in ("heads", "queries", "keys", "both")
    for causal in (False, True)
}

GROUPS = {
    "pointwise": POINTWISE,
    "reductions": REDUCTIONS,
    "movements": MOVEMENTS,
    "products": PRODUCTS,
    "scans": SCANS,
    "softmaxes": SOFTMAXES,
    "norms": NORMS,
    "losses": LOSSES,
    "indexing": INDEXING,
    "attention": ATTENTION,
}


def placed(ops, n, device, mesh=None):
    """An operand for each op."""
    operands = {}
    for i, name in enumerate(ops):
        x = numbers(3, n, seed=i).to(device).requires_grad_()
        operands[name] = x if mesh is None else spmdx.mark_sharding(x, mesh, LAST)
    if mesh is not None:
        spmdx.mark_step()
    return operands


def run(ops, operands, device):
    """Results of each op, and the gradient of its own operand."""
    results = {}
    for name, op in ops.items():
        out = op(operands[name])
        results[name] = list(out) if isinstance(out, tuple) else [out]
    total = 0
    for out in (o for outs in results.values() for o in outs if o.requires_grad):
        ramp = torch.linspace(0.5, 1.5, out.shape[-1] if out.dim() else 1, dtype=out.dtype)
        total = total + (out * ramp.to(device)).sum()
    total.backward()
    if device != "cpu":
        spmdx.mark_step()
    return {
        name: [t.detach().cpu() for t in results[name]]
        + ([x.grad.cpu()] if x.grad is not None else [])
        for name, x in operands.items()
    }


def is_refused(op, x):
    try:
        out = op(x)
        for tensor in out if isinstance(out, tuple) else [out]:
            tensor.cpu()  # a kernel's refusal comes when its result is waited for
    except (RuntimeError, ValueError, IndexError):
        return True
    return False


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("n", SIZES)
def test_every_size(group, n):
    refused = {name for name, op in GROUPS[group].items() if is_refused(op, numbers(3, n))}
    ops = {name: op for name, op in GROUPS[group].items() if name not in refused}
    want = run(ops, placed(ops, n, "cpu"), "cpu") if ops else {}
    for devices in DEVICES if ops else ():
        with least_work():
            got = run(ops, placed(ops, n, "spmdx", mesh_of(devices)), "spmdx")
        for name in ops:
            for i, (a, b) in enumerate(zip(got[name], want[name], strict=True)):
                assert_equal(a.nan_to_num(7e7), b.nan_to_num(7e7), f"{name} {i} on {devices}", 1e-9)
    for name in () if ON_GPU else refused:  # what plain PyTorch refuses is refused
        assert is_refused(GROUPS[group][name], numbers(3, n).to("spmdx")), name
