# SPDX-License-Identifier: Apache-2.0
"""How the processes of a save or a load agree: what one of them raises, all raise."""

import datetime
import json
from collections.abc import Callable
from typing import Any

from spmdx.errors import CheckpointError, bare
from spmdx.runtime import process_count, process_index

# Gives every process the JSON-able values of all, in order of process.
Exchange = Callable[[Any], list]
_PATIENCE = datetime.timedelta(minutes=30)  # other processes may still be writing
_background_saves = 0


def alone(value: Any) -> list:
    return [value]


def in_step() -> Exchange:
    """For the thread that runs the program: ordered with what else the processes exchange."""
    if process_count() == 1:
        return alone
    from spmdx import _world

    return _world.exchange


def in_background() -> Exchange:
    """For a thread beside the program: a connection of its own, in keys of its own."""
    if process_count() == 1:
        return alone
    from torch.distributed import PrefixStore

    from spmdx import _world

    global _background_saves
    _background_saves += 1
    store = PrefixStore(f"spmdx.checkpoint.{_background_saves}", _world.store().clone())
    return _through(store, process_index(), process_count())


def _through(store: Any, process: int, count: int) -> Exchange:
    rounds = 0

    def exchange(value: Any) -> list:
        nonlocal rounds
        rounds += 1
        store.set(f"{rounds}/{process}", json.dumps(value))
        keys = [f"{rounds}/{p}" for p in range(count)]
        store.wait(keys, _PATIENCE)
        return [json.loads(store.get(key)) for key in keys]

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
