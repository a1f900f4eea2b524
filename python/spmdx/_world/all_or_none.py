# SPDX-License-Identifier: Apache-2.0
"""What every process does to its part of a tensor: either all processes do it, or none."""

from collections.abc import Callable
from typing import Any

from spmdx._world import processes
from spmdx.errors import CommError, bare, located

_YES, _NO = "yes", "no"


def told(what: str, work: Callable[[], Any]) -> Any:
    """What ``work`` gives, JSON-able, in every process, in order of the processes.

    Raises:
        CommError: it raised in another process. A process that raises does not wait.
    """
    try:
        value = work()
    except BaseException as error:  # the others must hear of any error, Ctrl-C too
        if processes.process_count() > 1:
            processes.tell([_said(error), None])
        raise
    answers = processes.exchange([None, value], what)
    if refusal := _refusal(answers):
        raise CommError(located(what, refusal))
    return [value for _, value in answers]


def all_or_none(what: str, check: Callable[[], Any], take: Callable[[Any], None]) -> None:
    """Call ``take`` with what ``check`` gives, if it gives something in every process.

    The first word in the store decides. So a process whose wait is broken off
    can still learn whether the others have taken theirs, and take its own before it raises.

    Args:
        what: what messages call it.
        check: looks, and changes nothing.
        take: cannot fail, and may be called again.

    Raises:
        CommError: another process has refused, or does not come.
    """
    if processes.process_count() == 1:
        return take(check())
    processes.join()
    generation, turn = processes.turn_of("shards")
    name = f"shards {generation}"
    try:
        checked = check()
    except BaseException as error:
        processes.give(name, turn, [_said(error)])
        raise
    try:
        if refusal := _refusal(processes.in_turn(name, turn, [None])):
            raise CommError(refusal)
        if processes.decide(name, turn, _YES) != _YES:
            raise CommError(
                "another process was broken off. Expected all of them to take their shards. Catch "
                "the error in every process to go on: spmdx.runtime.recover()."
            )
        take(checked)
    except BaseException as error:
        if _decided(name, turn) == _YES:
            take(checked)
        if isinstance(error, CommError):
            raise CommError(located(what, str(error))) from None
        raise


def _decided(name: str, turn: int) -> str:
    try:
        return processes.decide(name, turn, _NO)
    except RuntimeError:  # the store has ended, and with it the program
        return _NO


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {bare(error)}".split(". ")[0]


def _refusal(answers: list[list]) -> str:
    """What to tell where a process has refused its shards; empty if none has."""
    for process, (error, *_) in enumerate(answers):
        if error is not None:
            return (
                f"process {process} failed: {error}. Expected shards that fit in every process: "
                "none has taken any. Mend them there."
            )
    return ""
