# SPDX-License-Identifier: Apache-2.0
"""Indices that are out of range in a later run: PyTorch's error, and nothing else is written to."""

import pytest
import spmdx
import torch
from torch.nn import functional

FINE = [0, 1, 2, 3], [0, 5, 5, 0], [3, 2, 1, 0]
BAD = [0, 6, 1, 2], [0, 9, 1, 2], [0, -7, 1, 2], [0, 10**6, 1, 2]


def ones(x, *shape):
    return torch.ones(*shape, device=x.device)


def entropy_grad(x, index):
    rows = (x[:4] * 1).detach().requires_grad_()
    return torch.autograd.grad(functional.cross_entropy(rows * 2, index // 2), rows)[0]


def gather_grad(x, index):
    rows = (x * 1).detach().requires_grad_()
    return torch.autograd.grad(rows.gather(0, index.view(1, -1)).sum(), rows)[0]


PROGRAMS = {
    "index_put": lambda x, i: (x * 1).index_put((i,), ones(x, 4, 4)),
    "index_put, added": lambda x, i: (x * 1).index_put((i,), ones(x, 4, 4), accumulate=True),
    "scatter": lambda x, i: (x * 1).scatter(0, i.view(1, -1), 7.5),
    "scatter of a source": lambda x, i: (x * 1).scatter(0, i.view(1, -1), ones(x, 1, 4)),
    "scatter_add": lambda x, i: (x * 1).scatter_add(0, i.view(1, -1), ones(x, 1, 4)),
    "index_fill": lambda x, i: (x * 1).index_fill(0, i, 2.0),
    "index_add": lambda x, i: (x * 1).index_add(0, i, ones(x, 4, 4)),
    "cross entropy, backward": entropy_grad,
    "gather, backward": gather_grad,
}


def outcome(program, x, index):
    """What it gives, or the error that says where it went wrong."""
    try:
        return (program(x, torch.tensor(index).to(x.device)) * 2).cpu()
    except (IndexError, RuntimeError) as error:
        assert "out of bounds" in str(error) or "out of range" in str(error)
        return type(error)


@pytest.mark.parametrize("compiler", ["iree", "xla", "onnxruntime"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_errors_as_without_a_compiler(name, compiler):
    pytest.importorskip({"iree": "iree.compiler", "xla": "jaxlib"}.get(compiler, compiler))
    spmdx.set_compiler(compiler, compile_now=True)
    x = torch.arange(24.0).reshape(6, 4)
    for index in [FINE[0], *BAD, *FINE]:
        expected = outcome(PROGRAMS[name], x, index)
        found = outcome(PROGRAMS[name], x.to("spmdx"), index)
        if isinstance(expected, torch.Tensor):
            assert torch.equal(found, expected), (name, index)
        else:
            assert found is expected, (name, index)
    assert "refused" not in {row.state for row in spmdx.explain().segments.segments}
