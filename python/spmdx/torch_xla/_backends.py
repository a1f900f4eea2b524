# SPDX-License-Identifier: Apache-2.0
"""torch.compile under torch_xla's name: the backend "openxla" is that of the device, in steps."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spmdx._base.after_import import after_import
from spmdx._compile.backend import record
from spmdx._xla.device.steps import sync_device
from spmdx.torch_xla.distributed import xla_backend


def _in_steps(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable:
    """The backend "openxla": each call of a graph ends a step, as it does in torch_xla."""
    recorded = record(graph, inputs, **options)

    def called(*args: Any) -> Any:
        result = recorded(*args)
        sync_device(wait=False)
        return result

    return called


def _teach(_: Any) -> None:
    """PyTorch has a backend of this name, which calls the compiled module of torch_xla."""
    sys.modules["torch._dynamo.backends.registry"]._COMPILER_FNS["openxla"] = _in_steps


@functools.cache
def install() -> None:
    """Registers the backend, and the process group that SPMD refuses; once."""
    after_import("torch._dynamo.backends.torchxla", _teach)
    xla_backend.install()
