# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.xla_backend: process groups. One program drives all devices, so none."""

import functools
from typing import Any

import torch.distributed as dist

from spmdx.torch_xla import runtime


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError(
        "the process group 'xla' is not for SPMD: one program drives all devices. Expected 'gloo' "
        "for groups of processes, as checkpoints use. Write init_process_group('gloo')."
    )


def _meet(url: str, *args: Any, **kwargs: Any) -> Any:
    """The rendezvous of "xla://": of processes that torchrun has started, or of one alone."""
    alone = runtime.process_count() == 1
    store: Any = dist.HashStore() if alone else next(iter(dist.rendezvous("env://")))[0]
    yield store, runtime.process_index(), runtime.process_count()


@functools.cache
def install() -> None:
    """Registers both names with torch.distributed; once."""
    dist.Backend.register_backend("xla", _refuse, devices="xla")
    dist.register_rendezvous_handler("xla", _meet)
