# SPDX-License-Identifier: Apache-2.0
"""Runs a program of spmdx whose shards lie on the simulated CUDA device.

    on_simulated.py PROGRAM [ARGUMENT …]

SIMULATED_CUDA is the built library; with SPMDX_TEST_NCCL=1 a simulated NCCL group sends messages.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import runpy
import sys

import torch
import torch.distributed as dist

LIBRARY = os.environ["SIMULATED_CUDA"]
torch.ops.load_library(LIBRARY)
from spmdx import _C, _meeting, _place, _world  # noqa: E402


def use_nccl() -> None:
    loader = importlib.machinery.ExtensionFileLoader("simulated_nccl", LIBRARY)
    spec = importlib.util.spec_from_loader("simulated_nccl", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)

    def group(store):
        here, count = _world.expected()
        return module.make(dist.ProcessGroupGloo(store, here, count, _meeting.FAR))

    _place.carrier = lambda: "nccl"
    _world._nccl_group = group


_C.set_place("cuda:0")
if os.environ.get("SPMDX_TEST_NCCL"):
    use_nccl()
del sys.argv[0]
sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
