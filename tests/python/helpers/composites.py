# SPDX-License-Identifier: Apache-2.0
"""Runs a function on one device and on a mesh: equal results, and what crossed the wire."""

from contextlib import contextmanager

import spmdx
import torch
from models import assert_equal

MESHES = {n: ((n,), ("x",)) for n in (2, 3, 4, 8)} | {"4x2": ((4, 2), ("x", "y"))}

EIGHT = 8  # bytes of a float64


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def integers(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def mesh_of(key):
    shape, names = MESHES[key]
    return spmdx.Mesh(range(torch.Size(shape).numel()), shape, names)


@contextmanager
def topology(picoseconds_per_byte, picoseconds_per_flop):
    """Starting a collective costs nothing inside: small tensors show what large ones do."""
    before = spmdx.get_topology()
    level = spmdx.topology.Level(
        latency_ns=0, message_ns=0, picoseconds_per_byte=picoseconds_per_byte
    )
    spmdx.set_topology(
        spmdx.Topology(
            name="for tests",
            levels=(level,),
            hardware=spmdx.Hardware(
                name="for tests",
                flops_per_second={"f32": 1e12 / picoseconds_per_flop},
                memory_bytes_per_second=10e9,
            ),
        )
    )
    try:
        yield
    finally:
        spmdx.set_topology(before)


def fewest_bytes():
    """What is moved is all that counts, but for a little compute."""
    return topology(picoseconds_per_byte=500, picoseconds_per_flop=5)


# An all_reduce, or its two halves, where something is done with parts of the sum.
REDUCED = {"all_reduce", "reduce_scatter", "all_gather"}


def least_work():
    """Moving is free: every device does its part of everything that can be cut."""
    return topology(picoseconds_per_byte=0, picoseconds_per_flop=1_000_000)


def run(function, tensors, device, mesh=None, specs=None):
    """Outputs and gradients on the CPU; the gradient flowing in differs from element to element."""
    placed = []
    for i, tensor in enumerate(tensors):
        t = tensor.to(device)
        if tensor.is_floating_point():
            t = t.requires_grad_()
        if mesh is not None and specs[i] is not None:
            spmdx.mark_sharding(t, mesh, specs[i])
        placed.append(t)
    if mesh is not None:
        spmdx.mark_step()  # laying out the data is no part of what is counted
    outputs = function(*placed)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    made = [out for out in outputs if out.requires_grad]
    upstream = [
        torch.linspace(0.5, 1.5, max(out.numel(), 1))[: out.numel()].reshape(out.shape)
        for out in made
    ]
    if made:
        torch.autograd.backward(
            made, [g.to(out.dtype).to(device) for g, out in zip(upstream, made, strict=True)]
        )
    gradients = [t.grad for t in placed]
    if mesh is not None:
        spmdx.mark_step()
    report = spmdx.explain() if mesh is not None else None
    return (
        [out.detach().cpu() for out in outputs],
        [None if g is None else g.cpu() for g in gradients],
        report,
    )


def compare(function, tensors, mesh, specs, relative=1e-9):
    """Outputs and gradients equal those of plain PyTorch; returns the report of the mesh's plan."""
    want = run(function, [t.clone() for t in tensors], "cpu")
    with least_work():
        got = run(function, [t.clone() for t in tensors], "spmdx", mesh, specs)
    check(got, want, relative)
    with fewest_bytes():
        got = run(function, [t.clone() for t in tensors], "spmdx", mesh, specs)
    check(got, want, relative)
    return got[2]


def check(got, want, relative):
    for i, (a, b) in enumerate(zip(got[0], want[0], strict=True)):
        assert_equal(a, b, f"output {i}", relative)
    for i, (a, b) in enumerate(zip(got[1], want[1], strict=True)):
        assert (a is None) == (b is None), f"gradient {i} exists on one side only"
        if a is not None:
            assert_equal(a, b, f"gradient of input {i}", relative)


def received(report, kind):
    """Bytes a device receives in collectives of one kind."""
    return sum(c.bytes for c in report.collectives if c.kind == kind)
