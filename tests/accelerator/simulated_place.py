# SPDX-License-Identifier: Apache-2.0
"""Puts the shards of a process on the simulated CUDA device; a plugin of pytest, too.

PYTHONPATH=tests/accelerator python -m pytest -p simulated_place tests/python/programs

SIMULATED_CUDA is the built library; with SPMDX_TEST_NCCL=1 a simulated NCCL group sends messages.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

HERE = str(pathlib.Path(__file__).parent)
BUILT = pathlib.Path(__file__).parents[2] / "build" / "tests" / "libsimulated_cuda.so"
LIBRARY = pathlib.Path(os.environ.get("SIMULATED_CUDA", BUILT))


def install() -> None:
    torch.ops.load_library(str(LIBRARY))
    from spmdx import _C

    _C.set_shard_device("cuda:0")
    if os.environ.get("SPMDX_TEST_NCCL"):
        _use_nccl()


def load_nccl() -> Any:
    """The module of the library that makes groups."""
    loader = importlib.machinery.ExtensionFileLoader("simulated_nccl", str(LIBRARY))
    spec = importlib.util.spec_from_loader("simulated_nccl", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def expect(error: type, text: str, function: Callable, *args: Any) -> None:
    """Fails unless ``function`` raises ``error`` with ``text`` in it."""
    try:
        function(*args)
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(f"no {error.__name__}: {text}")


def _use_nccl() -> None:
    from spmdx._world import hardware, processes, rendezvous

    module = load_nccl()

    def group(store, here, count):
        return module.make(dist.ProcessGroupGloo(store, here, count, rendezvous.FAR))

    hardware.carrier = lambda _: "nccl"
    processes._nccl_group = group


def pytest_configure(config):
    install()
