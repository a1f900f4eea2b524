# SPDX-License-Identifier: Apache-2.0
"""Random small programs on random meshes and specs equal the unsharded run, values and gradients.

python tests/python/test_random_programs.py 17        # run the program of one seed again
"""

import os
import random
import sys
import traceback

import pytest
import spmdx
import torch
from models import assert_equal
from program_ops import OPS

A_TEST, MOST_ELEMENTS = 25, 600
PROGRAMS = int(os.environ.get("RANDOM_PROGRAMS", "500"))  # `--count N`
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
