# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.xla_multiprocessing: starting programs. One drives all devices."""

from collections.abc import Callable
from typing import Any

from spmdx.torch_xla import torch_xla


def spawn(
    fn: Callable[..., Any],
    args: tuple = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Run ``fn`` in this process; see ``torch_xla.launch``.

    Args:
        fn: called with the index 0, and ``args``.
        args: what follows the index.
        nprocs: 1 or None.
        join: must be true.
        daemon: kept for programs that give it.
        start_method: kept for programs that give it.

    Raises:
        ValueError: more than one process, or ``join`` is false.
        NotImplementedError: after ``use_spmd``.
    """
    if nprocs not in (None, 1) or not join:
        raise ValueError(
            "spawn runs one process, and waits for it. Expected nprocs=1 and join=True. For many "
            "processes start the program with torchrun."
        )
    torch_xla.launch(fn, args)
