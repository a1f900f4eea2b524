# SPDX-License-Identifier: Apache-2.0
"""How the processes of a save or a load agree: what one of them raises, all raise."""

import itertools
from collections.abc import Callable
from typing import Any

from torch.distributed import DistError

from spmdx import _world
from spmdx.errors import CheckpointError, CommError, bare
from spmdx.runtime import process_count

# Gives every process the JSON-able values of all, in order of process.
Exchange = Callable[[Any], list]
_PATIENCE = 2 * 3600.0  # seconds: others may still be writing, longer than any step takes
_operations = 0


def alone(value: Any) -> list:
    return [value]


def channel() -> Exchange:
    """For one save or load, which all processes call in the same order.

    It has keys of its own, so that a thread can use it while the program goes on.
    """
    if process_count() == 1:
        return alone
    global _operations
    _operations += 1
    _world.join()
    turns, name = itertools.count(), f"checkpoint {_operations}"

    def exchange(value: Any) -> list:
        try:
            return _world.in_turn(name, next(turns), value, _PATIENCE)
        except (CommError, DistError) as error:
            raise CheckpointError(
                f"the checkpoint was not finished: {str(error).splitlines()[0]}"
            ) from error

    return exchange


def together(exchange: Exchange, work: Callable[[], Any]) -> list:
    """What ``work`` returns in every process.

    Raises:
        CheckpointError: it raised, here or in another process.
    """
    value, error = None, None
    try:
        value = work()
    except Exception as caught:  # the others must hear of any
        error = caught
    told = None if error is None else f"{type(error).__name__}: {bare(error)}"
    answers = exchange([told, value])
    if isinstance(error, OSError):
        raise CheckpointError(
            f"{error}. Expected files that can be read and written. Free or mount the file system "
            "and try again."
        ) from error
    if error is not None:
        raise error
    for process, (other, _) in enumerate(answers):
        if other is not None:
            raise CheckpointError(f"process {process} failed: {other}")
    return [value for _, value in answers]
