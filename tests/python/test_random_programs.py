# SPDX-License-Identifier: Apache-2.0
"""Random small programs on random meshes and specs equal the unsharded run, values and gradients.

python tests/python/test_random_programs.py 17        # run the program of one seed again
"""

import random
import sys
import traceback

import pytest
import spmdx
import torch
import torch.nn.functional as F
from models import assert_equal

PROGRAMS, A_TEST, MOST_ELEMENTS = 500, 25, 600
MESHES = [
    (range(1), (1,)),
    (range(2), (2,)),
    (range(3), (3,)),
    (range(4), (4,)),
    (range(8), (8,)),
    (range(8), (4, 2)),
    (range(8), (2, 2, 2)),
    (range(6), (2, 3)),
    ((5, 0, 3, 6), (2, 2)),
]


# --- the ops: each takes the generator and the values so far, and returns new values or None ------


def some_dim(rng, x):
    return rng.randrange(x.dim())


def unary(rng, values):
    f = rng.choice(
        [
            torch.tanh,
            torch.sigmoid,
            torch.relu,
            torch.neg,
            torch.abs,
            torch.sin,
            F.gelu,
            F.silu,
            lambda x: x.tanh().exp(),
            lambda x: x * 1.5 + 0.25,
            lambda x: 1.0 / (x * x + 1.0),
            lambda x: (x * x + 0.5).sqrt(),
        ]
    )
    return [f(rng.choice(values))]


def binary(rng, values):
    x, y = rng.choice(values), rng.choice(values)
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        y = x.flip(0) if x.dim() else x * 0.5
    f = rng.choice(
        [
            torch.add,
            torch.sub,
            torch.mul,
            torch.maximum,
            torch.minimum,
            lambda a, b: a / (b * b + 1.0),
            lambda a, b: torch.where(a > b, a, b * 2.0),
        ]
    )
    return [f(x, y)]


def matmul(rng, values):
    x = rng.choice(values)
    if x.dim() < 2:
        return [torch.outer(x, x)] if x.dim() == 1 else None
    partners = [y for y in values if y.dim() == 2 and y.shape[0] == x.shape[-1]]
    y = rng.choice(partners) if partners and rng.random() < 0.7 else x.transpose(-1, -2)
    return [x @ y * 0.3]


def linear(rng, values):
    x = rng.choice(values)
    weights = [w for w in values if w.dim() == 2 and x.dim() and w.shape[1] == x.shape[-1]]
    if not weights:
        return None
    w = rng.choice(weights)
    biases = [b for b in values if b.shape == w.shape[:1]]
    return [F.linear(x, w, rng.choice(biases) if biases else None) * 0.3]


def movement(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return [x.unsqueeze(0).expand(3)]
    dim = some_dim(rng, x)
    order = rng.sample(range(x.dim()), x.dim())
    size = x.shape[dim]
    part = next((p for p in (2, 3, 5) if size % p == 0), 1)
    merge = min(dim, x.dim() - 2)
    choices = [
        lambda: x.permute(order),
        lambda: x.transpose(dim, -1),
        lambda: x.reshape(-1),
        lambda: x.unflatten(dim, (part, size // part)),
        lambda: x.unflatten(dim, (-1, part)),
        lambda: x.unsqueeze(dim),
        lambda: x.unsqueeze(dim).expand(*x.shape[:dim], 2, *x.shape[dim:]),
        lambda: x.flip(dim),
    ]
    if x.dim() >= 2:
        choices += [lambda: x.flatten(merge, merge + 1), lambda: x.mT.reshape(-1, x.shape[0])]
    return [rng.choice(choices)()]


def reduction(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dims, keep = rng.sample(range(x.dim()), rng.randint(1, x.dim())), rng.random() < 0.5
    choices = [x.sum, x.mean, x.logsumexp, x.amax, x.amin]
    if torch.Size([x.shape[d] for d in dims]).numel() > 1:
        choices.append(x.var)
    return [rng.choice(choices)(dims, keepdim=keep)]


def along_a_dim(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dim = some_dim(rng, x)
    choices = [
        lambda: x.softmax(dim),
        lambda: x.log_softmax(dim),
        lambda: x.cumsum(dim) * 0.5,
        lambda: F.layer_norm(x, x.shape[-1:]),
        lambda: x.max(dim).values,
        lambda: x.sort(dim).values,
        lambda: x.topk(max(1, x.shape[dim] // 2), dim).values,
    ]
    return [rng.choice(choices)()]


def cut(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dim = some_dim(rng, x)
    size = x.shape[dim]
    start = rng.randrange(size)
    end, step = rng.randint(start + 1, size), rng.choice([1, 1, 2])
    index = torch.tensor([rng.randrange(size) for _ in range(rng.randint(1, 5))]).to(x.device)
    slices = (slice(None),) * dim + (slice(start, end, step),)
    choices = [
        lambda: [x[slices]],
        lambda: [x.select(dim, start)],
        lambda: list(x.chunk(2, dim)),
        lambda: list(x.split(max(1, size - 1), dim)),
        lambda: [x.index_select(dim, index)],
        lambda: [x.narrow(dim, start, end - start)],
    ]
    return rng.choice(choices)()


def join(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    dim = some_dim(rng, x)
    fit = [
        y
        for y in values
        if y.dim() == x.dim()
        and all(a == b for d, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if d != dim)
    ]
    same = [y for y in values if y.shape == x.shape]
    padding = [0, 0] * (x.dim() - 1 - dim) + [1, 2]
    choices = [
        lambda: torch.cat([x, rng.choice(fit)], dim),
        lambda: torch.stack([x, rng.choice(same)], dim),
        lambda: F.pad(x, padding),
        lambda: torch.cat([x, x * 2.0, x], dim),
    ]
    return [rng.choice(choices)()]


def mutation(rng, values):
    x = rng.choice(values)
    if x.dim() == 0:
        return None
    y, dim = x.clone(), some_dim(rng, x)
    view = y.narrow(dim, rng.randrange(y.shape[dim]), 1)
    rng.choice(
        [
            lambda: y.mul_(1.5),
            lambda: view.mul_(2.0),
            lambda: view.zero_(),
            lambda: y.transpose(0, -1).add_(0.5),
            lambda: y.select(dim, 0).copy_(y.select(dim, -1) * 3.0),
        ]
    )()
    return [y]


OPS = (
    unary,
    unary,
    binary,
    binary,
    matmul,
    linear,
    movement,
    movement,
    reduction,
    along_a_dim,
    cut,
    join,
    mutation,
)


# --- one program ----------------------------------------------------------------------------------


def random_shapes(rng):
    size = [rng.choice([1, 2, 3, 4, 5, 6, 7, 8]) for _ in range(4)]
    a, b, c, d = size
    return [
        s
        for s in rng.sample([(a, b), (b, c), (a, b, c), (b,), (c, b), (a, c, b, d), (d, a)], 4)
        if torch.Size(s).numel() <= MOST_ELEMENTS
    ]


def random_spec(rng, rank, axes):
    """A partition spec: some axes, each on at most one dim, often two on one."""
    entries = [[] for _ in range(rank)]
    for axis in rng.sample(axes, len(axes)):
        if rank and rng.random() < 0.7:
            entries[rng.randrange(rank)].append(axis)
    return tuple(tuple(e) if len(e) > 1 else (e[0] if e else None) for e in entries)


def execute(seed, length, inputs, mark):
    """Run the program of `seed`; every choice depends on the seed and on shapes only."""
    rng = random.Random(seed)
    values, said = list(inputs), []
    while len(said) < length:
        op = rng.choice(OPS)
        made = op(rng, values)
        said.append(op.__name__)
        for value in made or ():
            if 0 < value.numel() <= MOST_ELEMENTS and value.dim() <= 5:
                mark(value)
                values.append(value)
    return values[len(inputs) :], said


def run(seed, length, device, mesh=None):
    """(outputs, gradients of the inputs), all on the CPU."""
    rng = random.Random(seed + 10**6)
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(s, dtype=torch.float64, generator=generator) for s in random_shapes(rng)]
    inputs = [x.to(device).requires_grad_() for x in inputs]

    def mark(value, share=0.2):
        chosen = rng.random() < share
        spec = random_spec(rng, value.dim(), list(mesh.axis_names)) if mesh is not None else None
        if chosen and mesh is not None:
            spmdx.mark_sharding(value, mesh, spec)

    for x in inputs:
        mark(x, 0.8)
    outputs, _ = execute(seed, length, inputs, mark)
    if outputs:
        loss = sum(
            (
                o
                * torch.linspace(0.5, 1.5, o.shape[-1] if o.dim() else 1, dtype=o.dtype).to(device)
            ).sum()
            for o in outputs
        )
        loss.backward()
    return [o.detach().cpu() for o in outputs], [
        None if x.grad is None else x.grad.cpu() for x in inputs
    ]


def mesh_of(seed):
    ids, shape = MESHES[seed % len(MESHES)]
    return spmdx.Mesh(ids, shape, tuple("xyz"[: len(shape)]))


def compare(seed, length):
    want, got = run(seed, length, "cpu"), run(seed, length, "spmdx", mesh_of(seed))
    for i, (a, b) in enumerate(zip(got[0], want[0], strict=True)):
        assert_equal(a, b, f"output {i}")
    for i, (a, b) in enumerate(zip(got[1], want[1], strict=True)):
        assert (a is None) == (b is None), f"gradient {i} exists on one side only"
        if a is not None:
            assert_equal(a, b, f"gradient of input {i}")


def failure(seed, length):
    """None, or what is wrong with the first `length` ops of the program."""
    try:
        compare(seed, length)
    except Exception as error:  # noqa: BLE001 - whatever happens is reported with its seed
        return f"{type(error).__name__}: {error}"
    return None


def shortest_failure(seed, length):
    """None, or the message of the shortest prefix of the program that fails."""
    last = failure(seed, length)
    if last is None:
        return None
    for shorter in range(1, length + 1):
        said = failure(seed, shorter)
        if said is not None:
            return f"seed {seed}, mesh {mesh_of(seed)}, first {shorter} ops: {said}"
    return f"seed {seed}, mesh {mesh_of(seed)}, {length} ops, not repeatable: {last}"


def length_of(seed):
    return 2 + seed % 7


@pytest.mark.parametrize("first", range(0, PROGRAMS, A_TEST))
def test_sharded_programs_equal_unsharded_ones(first):
    seeds = range(first, first + A_TEST)
    found = [said for seed in seeds if (said := shortest_failure(seed, length_of(seed)))]
    assert not found, f"{len(found)} of {A_TEST} programs differ:\n" + "\n".join(found)


def test_the_generator_makes_programs_of_every_op():
    said = set()
    for seed in range(100):
        rng = random.Random(seed + 10**6)
        inputs = [torch.ones(s, dtype=torch.float64) for s in random_shapes(rng)]
        said |= set(execute(seed, length_of(seed), inputs, lambda value: None)[1])
    assert said == {op.__name__ for op in OPS}


def test_the_programs_are_sharded_and_communicate():
    before = spmdx.debug.counters()["collectives"]
    for seed in range(20):
        run(seed, length_of(seed), "spmdx", mesh_of(seed))
    assert spmdx.debug.counters()["collectives"] - before > 20


def test_a_wrong_result_would_be_found():
    want = run(3, length_of(3), "cpu")[0][0]
    with pytest.raises(AssertionError, match="differs by"):
        assert_equal(want * (1 + 1e-8), want, "output 0")


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    print(f"mesh {mesh_of(wanted)}, {length_of(wanted)} ops")
    try:
        compare(wanted, length_of(wanted))
        print("equal")
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        print(shortest_failure(wanted, length_of(wanted)))
