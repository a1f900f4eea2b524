# SPDX-License-Identifier: Apache-2.0
"""What a report of a bug needs to say: versions, devices, settings, and whether a program runs."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping

import torch

import spmdx._C as _C
from spmdx._start.settings import KNOWN
from spmdx._version import __version__

PACKAGES = ("numpy", "rich", "safetensors", "matplotlib", "transformers", "torch-xla")
# Variables of others that change what a program does.
READ = (
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "WORLD_SIZE"),
    *("LOCAL_WORLD_SIZE", "MASTER_ADDR", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
    "PJRT_DEVICE",
)


def rows(environment: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """(what, value) of everything that is known without a tensor.

    Args:
        environment: names and values; None means ``os.environ``.

    Example:
        >>> dict(rows({"SPMDX_NUM_DEVICES": "8"}))["SPMDX_NUM_DEVICES"]
        '8'
    """
    environment = os.environ if environment is None else environment
    yield "spmdx", f"{__version__}, built with torch {_C.TORCH_VERSION}"
    yield "torch", f"{torch.__version__}, {torch.get_num_threads()} threads"
    yield "Python", platform.python_version()
    yield "system", f"{platform.platform()}, {os.cpu_count()} CPUs"
    yield from _gpus()
    for package in PACKAGES:
        yield package, _version(package)
    for name in (*KNOWN, *READ):
        if name in environment:
            yield name, environment[name]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _gpus() -> Iterator[tuple[str, str]]:
    if not torch.version.cuda:
        yield "CUDA", "torch is built without"
        return
    count = torch.cuda.device_count()
    yield "CUDA", f"{torch.version.cuda}, {count} GPUs"
    for index in range(count):
        found = torch.cuda.get_device_properties(index)
        yield f"GPU {index}", f"{found.name}, {found.total_memory / 2**30:.0f} GiB"
    if torch.distributed.is_nccl_available():
        yield "NCCL", ".".join(map(str, torch.cuda.nccl.version()))
