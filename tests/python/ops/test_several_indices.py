# SPDX-License-Identifier: Apache-2.0
"""Reads and writes at places that several tensors of indices give, of which a dim is cut."""

import pytest
import spmdx
import torch
from composites import MESHES, mesh_of, numbers

SHAPE = (13, 7, 6)
# Each gives indices of a tensor of SHAPE, by 5 numbers of rows, of columns, and in the last dim.
INDICES = {
    "rows and columns": lambda i, j, k: (i, j),
    "rows and last": lambda i, j, k: (i, slice(None), k),
    "columns and last": lambda i, j, k: (slice(None), j, k),
    "all three": lambda i, j, k: (i, j, k),
    "a grid": lambda i, j, k: (i[:, None], j[:3]),
    "a row for each column": lambda i, j, k: (i[:1], j),
    "columns of a part": lambda i, j, k: (slice(2, 9), j[:, None], k.view(1, -1)),
    "one number": lambda i, j, k: (i, 3, k),
    "from the end": lambda i, j, k: (i - SHAPE[0], j - SHAPE[1]),
    "twice the same": lambda i, j, k: (torch.cat([i, i]), torch.cat([j, j])),
}
SPECS = [("x", None, None), (None, "x", None), (None, None, "x")]


def read(x, at):
    return x[at] * 2


def put(x, at):
    values = x[at] * 3 + 1
    x[at] = values
    return x * 1


def added(x, at):
    x.index_put_(at, x[at] * 0 + 1.5, accumulate=True)
    return x * 1


def gradient(x, at):
    x = x.detach().requires_grad_()
    (x[at].exp() * 3).sum().backward()
    return x.grad


def run(program, indices, device="cpu", mesh=None, spec=None):
    x, at = numbers(*SHAPE), torch.tensor([[9, 0, 12, 4, 4], [3, 6, 0, 1, 2], [5, 5, 0, 2, 4]])
    x, at = x.to(device), at.to(device)
    if spec:
        spmdx.mark_sharding(x, mesh, spec)
        spmdx.mark_step()
    places = indices(*at)
    if program is added:
        places = tuple(p for p in places if isinstance(p, torch.Tensor))
    return program(x, places).cpu()


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("program", [read, put, added, gradient], ids=lambda p: p.__name__)
@pytest.mark.parametrize("name", INDICES)
def test_what_is_read_and_written_is_that_of_the_cpu(name, program, devices):
    if program is added and name not in ("rows and columns", "a grid", "all three", "from the end"):
        pytest.skip("index_put_ takes tensors alone")
    wanted = run(program, INDICES[name])
    for spec in SPECS:
        found = run(program, INDICES[name], "spmdx", mesh_of(devices), spec)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_rows_of_a_cut_tensor_are_not_gathered_to_take_an_element_of_each():
    mesh = mesh_of(4)
    scores = spmdx.mark_sharding(numbers(64, 1000).to("spmdx"), mesh, ("x", None))
    labels = torch.arange(64).to("spmdx") * 7
    spmdx.mark_step()
    chosen = scores[torch.arange(64).to("spmdx"), labels]
    moved = sum(c.bytes for c in spmdx.explain(chosen).collectives)
    assert moved <= 2 * 64 * 8
    wanted = numbers(64, 1000)[torch.arange(64), torch.arange(64) * 7]
    assert torch.equal(chosen.cpu(), wanted)


@pytest.mark.parametrize("column", [7, -8])
def test_a_wrong_index_of_any_dim_is_an_error(column):
    x = spmdx.mark_sharding(numbers(*SHAPE).to("spmdx"), mesh_of(4), ("x", None, None))
    rows, columns = torch.tensor([0, 12]).to("spmdx"), torch.tensor([1, column]).to("spmdx")
    with pytest.raises(IndexError, match="index"):
        x[rows, columns].cpu()
    with pytest.raises(IndexError, match="index"):
        x[rows, columns] = 0.0
        x.cpu()


@pytest.mark.parametrize("spec", SPECS)
def test_indices_that_are_not_long_are_an_error_where_they_are_on_the_cpu(spec):
    def fails(call, device):
        x, i = numbers(*SHAPE).to(device), torch.tensor([1], dtype=torch.int32).to(device)
        if device == "spmdx":
            x = spmdx.mark_sharding(x, mesh_of(4), spec)
        with pytest.raises((IndexError, RuntimeError)) as raised:
            call(x, i).cpu()
        return type(raised.value), str(raised.value).splitlines()[0]

    for call in (
        lambda x, i: x.index_fill(0, i, 2.0),
        lambda x, i: x.index_copy(0, i, x[:1]),
    ):
        (kind, text), (found, told) = fails(call, "cpu"), fails(call, "spmdx")
        assert found is kind and text in told
