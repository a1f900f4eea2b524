# SPDX-License-Identifier: Apache-2.0
"""torch.compile under torch_xla's name: the backend "openxla" is that of the device."""

import functools
import sys
from typing import Any

from spmdx._base.after_import import after_import
from spmdx._compile.backend import record
from spmdx.torch_xla.distributed import xla_backend


def _teach(_: Any) -> None:
    """PyTorch has a backend of this name, which calls the compiled module of torch_xla."""
    sys.modules["torch._dynamo.backends.registry"]._COMPILER_FNS["openxla"] = record


@functools.cache
def install() -> None:
    """Registers the backend, and the process group that SPMD refuses; once."""
    after_import("torch._dynamo.backends.torchxla", _teach)
    xla_backend.install()
