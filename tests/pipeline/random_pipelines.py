# SPDX-License-Identifier: Apache-2.0
"""Random models on random stages, trained by random loops; more of them than tests run:

python tests/pipeline/random_pipelines.py --count 20000 [--first 0]
"""

import argparse
import random
import sys

import spmdx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH = 4
MESHES = [
    ((2,), ("pipe",)),
    ((3,), ("pipe",)),
    ((4,), ("pipe",)),
    ((8,), ("pipe",)),
    ((2, 2), ("pipe", "data")),
    ((4, 2), ("data", "pipe")),
    ((3, 2), ("pipe", "data")),
    ((2, 3), ("data", "pipe")),
]

# What a loop adds up after each backward pass, of the net, the loss and what it was computed from.
SUMS = {
    "total": lambda net, loss, last: loss,
    "hits": lambda net, loss, last: (last.argmax(1) == 1).sum(),
    "errors": lambda net, loss, last: ((last - 1).abs() > 0.5).double().mean(1).sum() + loss,
    "norms": lambda net, loss, last: sum(p.grad.norm() for p in net.w if p.grad is not None),
}

# Of the model, two earlier values, a matrix and a vector.
OPS = {
    "product": lambda net, a, b, w, v: torch.tanh(a @ w),
    "linear": lambda net, a, b, w, v: F.linear(a, w, v),
    "sum": lambda net, a, b, w, v: a + b,
    "gate": lambda net, a, b, w, v: torch.tanh(a) * torch.sigmoid(b),
    "scale": lambda net, a, b, w, v: a * v,
    "shift": lambda net, a, b, w, v: a + v,
    "joined": lambda net, a, b, w, v: torch.cat([a, b], 1)[:, 1 : 1 + WIDTH],
    "buffer": lambda net, a, b, w, v: a + net.constant,
    "norm": lambda net, a, b, w, v: F.layer_norm(a, (WIDTH,), v),
    "rms": lambda net, a, b, w, v: a * torch.rsqrt(a.square().mean(-1, keepdim=True) + 0.1),
    "wide": lambda net, a, b, w, v: (a * v + b.exp().clamp(max=2)).square().sqrt() - a.sin(),
    "of_weight": lambda net, a, b, w, v: a / (1 + w.norm()),
    "flipped": lambda net, a, b, w, v: a.flip(1),
    "detached": lambda net, a, b, w, v: a + b.detach(),
    "chosen": lambda net, a, b, w, v: torch.where(a > 0, a, b * v),
    "softmax": lambda net, a, b, w, v: torch.softmax(a @ w, -1),
    "made_anew": lambda net, a, b, w, v: torch.utils.checkpoint.checkpoint(
        lambda x: torch.tanh(torch.relu(x) @ w), a, use_reentrant=False
    ),
    "made_anew_as_of_old": lambda net, a, b, w, v: torch.utils.checkpoint.checkpoint(
        lambda x: torch.sigmoid(torch.sin(x) * v), a, use_reentrant=True
    ),
    "pooled": lambda net, a, b, w, v: a.mean(1, keepdim=True) + b.amax(1, keepdim=True) * v,
    "overwritten": lambda net, a, b, w, v: overwritten(a, v),
    "counted": lambda net, a, b, w, v: net.counted(a),
}


def overwritten(a, v):
    result = a.clone()
    result.mul_(0.5)
    result[:, 0] += v[0]
    return result


class Net(nn.Module):
    """Ops in a row, each of earlier values and of parameters that others may read, too."""

    def __init__(self, draw):
        super().__init__()
        sizes = draw.randint(2, 6), draw.randint(1, 4)
        self.w = nn.ParameterList(torch.randn(WIDTH, WIDTH) / 2 for _ in range(sizes[0]))
        self.v = nn.ParameterList(torch.randn(WIDTH) / 2 for _ in range(sizes[1]))
        for p in [*self.w][1:]:
            p.requires_grad_(draw.random() > 0.1)
        self.register_buffer("constant", torch.randn(WIDTH))
        self.register_buffer("average", torch.zeros(WIDTH))
        self.ops = []
        for n in range(1, 1 + draw.randint(3, 12)):
            first = draw.randrange(max(0, n - 3), n) if draw.random() < 0.8 else draw.randrange(n)
            operands = draw.randrange(n), draw.randrange(sizes[0]), draw.randrange(sizes[1])
            self.ops.append((draw.choice([*OPS]), first, *operands))

    def counted(self, a):
        with torch.no_grad():
            self.average.mul_(0.9).add_(a.detach().sum(0) * 0.1)
        return a + self.average.clone()

    def forward(self, x):
        values = [x]
        for op, a, b, w, v in self.ops:
            values.append(OPS[op](self, values[a], values[b], self.w[w], self.v[v]))
        return values[-1], values[len(values) // 2]


def draw_settings(seed):
    draw = random.Random(seed * 7919 + 3)
    shape, axes = draw.choice(MESHES)
    m = draw.choice([1, 2, 3, 4, 5, 8])
    cuts = sorted(draw.randint(0, 12) for _ in range(m - 1))
    chunks = draw.choice([1, 1, 1, 2])
    settings = {
        "shape": shape,
        "axes": axes,
        "chunks": chunks,
        "schedule": "1f1b" if chunks > 1 else draw.choice(["gpipe", "1f1b", "zb-h1"]),
        "sizes": [b - a for a, b in zip([0, *cuts], [*cuts, 12], strict=True)],  # some of no rows
        "by_hand": draw.random() < 0.3,
        "tied": draw.random() < 0.3,
        "sharded": draw.random() < 0.3,
        "rows_cut": draw.random() < 0.4,
        "twice": draw.random() < 0.15,
        "read_in_the_loop": draw.random() < 0.2,
        "clipped": draw.random() < 0.3,
        "steps_marked": draw.random() < 0.85,
        "to_none": draw.random() < 0.7,
        "evaluated": draw.random() < 0.3,
        "optimizer": draw.choice(["SGD", "Adam", "Adagrad"]),
        "foreach": draw.choice([True, False]),
        "steps": draw.randint(1, 3),
        "checkpointed": draw.choice([None, None, None, "anew", "reentrant"]),
        "cut_anew": draw.random() < 0.15,
        "taken": draw.choice(["split", "split", "in the loop", "uploaded"]),
        "carried": draw.choice([None, None, "average", "state", "buffer", *SUMS]),
        "summed_to_a_number": draw.random() < 0.5,
        "summed_later": draw.choice([None, None, "stacked", "added"]),
    }
    if draw.random() < 0.5:  # alike, but for the last one; such are planned as one
        m = draw.choice([5, 6, 8, 11, 12])
        settings["sizes"] = [12 // m] * m + [12 % m] * (12 % m > 0)
    return settings


def annotate(net, settings, draw):
    shape, axes = settings["shape"], settings["axes"]
    mesh = spmdx.Mesh(range(torch.Size(shape).numel()), shape, axes)
    if settings["sharded"] and "data" in axes:
        spmdx.nn.fully_shard(net, mesh, "data")
    stages = shape[axes.index("pipe")] * settings["chunks"]
    tensors = dict([*net.named_parameters(), *net.named_buffers()])
    where = {name: draw.randrange(stages) for name in tensors}
    if settings["by_hand"]:
        for name, tensor in tensors.items():
            if draw.random() < 0.8:
                spmdx.mark_stage(tensor, mesh, where[name])
    else:
        how = {key: settings[key] for key in ("schedule", "chunks")}
        spmdx.nn.pipeline(net, mesh, cuts=where, **how)
    return mesh


def cut_anew(net, mesh, settings, draw):
    """Other stages for all tensors, amid training."""
    stages = mesh.shape()["pipe"] * settings["chunks"]
    names = dict([*net.named_parameters(), *net.named_buffers()])
    where = {name: draw.randrange(stages) for name in names}
    how = {key: settings[key] for key in ("schedule", "chunks")}
    spmdx.nn.pipeline(net, mesh, cuts=where, **how)


def passed(net, x, checkpointed):
    """What the net makes of a microbatch, which a checkpoint computes anew."""
    if checkpointed is None:
        return net(x)
    if checkpointed == "reentrant":  # which sees inputs alone
        x = x.detach().requires_grad_()
    return checkpoint(net, x, use_reentrant=checkpointed == "reentrant")


def microbatches(batch, settings, device):
    """The batch in parts, on the device."""
    if settings["taken"] == "split":
        yield from batch.to(device).split(settings["sizes"])
        return
    if settings["taken"] == "in the loop":
        batch = batch.to(device)
    end = 0
    for rows in settings["sizes"]:
        begin, end = end, end + rows
        yield batch[begin:end].to(device)


class Carried:
    """What a microbatch leaves to the next one."""

    def __init__(self, kind, net, device, with_number):
        self.kind, self.net = kind, net
        self.value = 0 if with_number else None
        if kind == "average":
            self.value = torch.zeros((), device=device)
        elif kind == "state":
            self.value = torch.zeros(WIDTH, device=device)

    def before(self, x):
        return x + self.value if self.kind == "state" else x

    @torch.no_grad()
    def after(self, loss, last):
        if self.kind in SUMS:
            term = SUMS[self.kind](self.net, loss.detach(), last.detach())
            self.value = term if self.value is None else self.value + term
        elif self.kind == "average":
            self.value.mul_(0.9).add_(loss.detach(), alpha=0.1)
        elif self.kind == "state":
            self.value = 0.5 * self.value + last.detach().sum(0).tanh()
        elif self.kind == "buffer":
            self.net.constant.mul_(1.01)

    def found(self):
        return [self.value] if isinstance(self.value, torch.Tensor) else []


def summed(losses, how):
    if how == "stacked" and losses:
        return [torch.stack(losses).sum()]
    return [sum(losses)] if how == "added" and losses else []


def train(seed, device):
    """What a program gives, as a list of tensors on the CPU."""
    settings, draw = draw_settings(seed), random.Random(seed)
    torch.manual_seed(seed)
    net = Net(draw).to(device)
    if settings["tied"]:
        net.w[1] = net.w[0]
    mesh = annotate(net, settings, draw) if device != "cpu" else None
    learning = [p for p in net.parameters() if p.requires_grad]
    kind = {"SGD": {"momentum": 0.9}}.get(settings["optimizer"], {"eps": 1e-3})
    make = getattr(torch.optim, settings["optimizer"])
    optimizer = make(learning, lr=0.02, foreach=settings["foreach"], **kind)
    found = []
    for _ in range(settings["steps"]):
        batch = torch.randn(12, WIDTH)
        carried = Carried(settings["carried"], net, device, settings["summed_to_a_number"])
        losses = []
        for i, x in enumerate(microbatches(batch, settings, device)):
            if mesh is not None and settings["rows_cut"] and "data" in settings["axes"]:
                spmdx.mark_sharding(x, mesh, ("data", None))
            last, middle = passed(net, carried.before(x), settings["checkpointed"])
            loss = last.square().sum() / 12 + middle.sin().sum() / 120
            if loss.requires_grad and settings["twice"] and i % 2 == 0:
                (loss / 2).backward(retain_graph=True)
                (loss / 2).backward()
            elif loss.requires_grad:
                loss.backward()
            losses.append(loss.detach())
            carried.after(loss, last)
            if settings["read_in_the_loop"] and i == 1:
                loss.item()
        found += [*losses, *carried.found(), *summed(losses, settings["summed_later"])]
        used = [p for p in learning if p.grad is not None]
        found += [p.grad.clone() for p in used]
        if settings["clipped"] and used:
            found.append(nn.utils.clip_grad_norm_(used, 0.5))
        optimizer.step()
        if device != "cpu" and settings["steps_marked"]:
            spmdx.mark_step()
        optimizer.zero_grad(set_to_none=settings["to_none"])
        if mesh is not None and settings["cut_anew"]:
            cut_anew(net, mesh, settings, random.Random(seed + 1))
        if settings["evaluated"]:
            with torch.no_grad():
                found.append(net(batch.to(device))[0])
    return [t.detach().cpu() for t in [*found, *net.state_dict().values()]]


def check(seed):
    """Raises where a program on stages differs from plain PyTorch on the CPU."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        wanted, got = train(seed, "cpu"), train(seed, "spmdx")
    finally:
        torch.set_default_dtype(default)
    assert len(got) == len(wanted), f"seed {seed}: {len(got)} values of {len(wanted)}"
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9, msg=lambda m: f"seed {seed}: {m}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    spmdx.runtime.set_device_count(8)
    failed = 0
    for seed in range(options.first, options.first + options.count):
        try:
            check(seed)
        except Exception as error:  # all that fail are told
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"{options.count} programs, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
