# SPDX-License-Identifier: Apache-2.0
"""torch.compile under torch_xla's name: the backend "openxla" is that of the device."""

import functools
from typing import Any

from spmdx._base.after_import import after_import
from spmdx._compile.backend import record
from spmdx.torch_xla.distributed import xla_backend


def _teach(_: Any) -> None:
    from torch._dynamo.backends import registry

    registry.register_backend(record, name="openxla")


@functools.cache
def install() -> None:
    """Registers the backend, and the process group that SPMD refuses; once."""
    after_import("torch._dynamo", _teach)
    xla_backend.install()
