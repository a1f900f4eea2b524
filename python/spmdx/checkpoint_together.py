# SPDX-License-Identifier: Apache-2.0
"""How the processes of a save or a load agree: what one of them raises, all raise."""

import json
import time
from collections.abc import Callable
from typing import Any

from torch.distributed import DistError

from spmdx import _C, _world
from spmdx.errors import CheckpointError, bare
from spmdx.runtime import process_count, process_index

# Gives every process the JSON-able values of all, in order of process.
Exchange = Callable[[Any], list]
_PATIENCE = 2 * 3600.0  # seconds: others may still be writing, longer than any step takes
_GLANCE = 0.02
_operations = 0


def alone(value: Any) -> list:
    return [value]


def channel() -> Exchange:
    """For one save or load, which all processes call in the same order.

    It has a connection and keys of its own, so that a thread can use it while the program goes on.
    """
    if process_count() == 1:
        return alone
    from torch.distributed import PrefixStore

    global _operations
    _operations += 1
    store = PrefixStore(f"checkpoint/{_operations}", _world.store().clone())
    return through(store, process_index(), process_count(), _C.lives)


def through(store: Any, process: int, count: int, lives: Callable[[int], bool]) -> Exchange:
    """An exchange in the keys of ``store``."""
    rounds = 0

    def exchange(value: Any) -> list:
        try:
            return by_turns(value)
        except DistError as error:
            raise CheckpointError(
                "the process that hosts the store (process 0 or the launcher) has ended while the "
                f"checkpoint was saved or loaded: {str(error).splitlines()[0]}. Expected it to "
                "live as long as the others. See what it printed, and start the program again."
            ) from error

    def by_turns(value: Any) -> list:
        nonlocal rounds
        rounds += 1
        store.set(f"{rounds}/{process}", json.dumps(value))
        keys = [f"{rounds}/{p}" for p in range(count)]
        _wait(store, keys, lives)
        values = [json.loads(store.get(key)) for key in keys]
        if rounds > 1:  # all have come here, so all have read what was before
            store.delete_key(f"{rounds - 1}/{process}")
        return values

    return exchange


def _wait(store: Any, keys: list[str], lives: Callable[[int], bool]) -> None:
    """Until all keys are there."""
    until = time.monotonic() + _PATIENCE
    while not store.check(keys):
        ended = [p for p in range(len(keys)) if not lives(p)]
        missing = [p for p, key in enumerate(keys) if not store.check([key])]
        lost = [p for p in missing if p in ended]
        if lost or time.monotonic() > until:
            raise CheckpointError(
                f"process {(lost or missing)[0]} {'has ended' if lost else 'did not come'} while "
                "the checkpoint was saved or loaded. Expected all processes to call the same. See "
                "what it printed, and start the program again."
            )
        time.sleep(_GLANCE)


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
