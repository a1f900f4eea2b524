# SPDX-License-Identifier: Apache-2.0
"""What programs share: meshes of all devices, and messages of errors."""

import contextlib

import torch
import torch_xla.distributed.spmd as xs


def grid(devices, names=("data", "model")):
    """A mesh of two axes."""
    rows = 2 if devices % 2 == 0 else 1
    return xs.Mesh(range(devices), (rows, devices // rows), names)


def line(devices, name="x"):
    return xs.Mesh(range(devices), (devices,), (name,))


def same(got, want):
    torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=1e-4, atol=1e-5)


@contextlib.contextmanager
def refused(kind, said=""):
    """A block that raises such an error, with this in its message."""
    try:
        yield
    except kind as error:
        assert said in str(error), f"{said!r} is not in {error!s}"
        return
    raise AssertionError(f"nothing was raised. Expected {kind} with {said!r}")
