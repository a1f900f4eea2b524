# SPDX-License-Identifier: Apache-2.0
"""How the processes of a save or a load agree: if one of them raises, all raise."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch.distributed import DistError

from spmdx._base.interrupts import interruptible
from spmdx._world import processes
from spmdx._world.processes import process_count
from spmdx.errors import CheckpointError, CommError, bare

# Gives every process the JSON-able values of all, in order of process.
Exchange = Callable[[Any], list]
_PATIENCE = 2 * 3600.0  # seconds: others may still be writing, longer than any step takes
_one_at_a_time = threading.RLock()  # one save or load at a time, of this process's threads


def alone(value: Any) -> list:
    return [value]


@contextlib.contextmanager
def channel() -> Iterator[Exchange]:
    """For one save or load, which all processes call in the same order; threads take turns.

    It has keys of its own, so that a thread can use it while the program goes on.
    """
    with _one_at_a_time:
        yield _open()


def _open() -> Exchange:
    if process_count() == 1:
        return alone
    processes.join()
    generation, operation = processes.turn_of("checkpoint")
    turns, name = itertools.count(), f"checkpoint {generation}.{operation}"

    def exchange(value: Any) -> list:
        try:
            return processes.in_turn(name, next(turns), value, _PATIENCE)
        except (CommError, DistError) as error:
            raise CheckpointError(
                f"the checkpoint was not finished: {str(error).splitlines()[0]}"
            ) from error
        except KeyboardInterrupt:  # this process will take part in no later turn
            processes.give(name, next(turns), ["KeyboardInterrupt: ", None])
            raise

    return exchange


def together(exchange: Exchange, work: Callable[[], Any]) -> list:
    """What ``work`` returns in every process.

    Raises:
        CheckpointError: it raised, here or in another process.
    """
    try:
        with interruptible():
            value = work()
    except BaseException as error:  # the others must hear of any error, Ctrl-C too
        exchange([f"{type(error).__name__}: {bare(error)}", None])
        if isinstance(error, OSError):
            raise CheckpointError(
                f"{error}. Expected files that can be read and written. Free or mount the file "
                "system and try again."
            ) from error
        raise
    answers = exchange([None, value])
    for process, (other, _) in enumerate(answers):
        if other is not None:
            raise CheckpointError(f"process {process} failed: {other}")
    return [value for _, value in answers]
