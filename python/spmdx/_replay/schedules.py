# SPDX-License-Identifier: Apache-2.0
"""Schedules that a call steps: their own Python runs at each replay, after the step is sent."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from spmdx._replay.given import Given
from spmdx._replay.state.origins import codes_of_users
from spmdx._replay.state.watch import Change
from spmdx._replay.tape import Tape

# What tells of where a schedule is.
_READS = {"get_last_lr", "get_lr", "state_dict", "last_epoch", "_last_lr", "_step_count"}

Act = tuple[LRScheduler, tuple[Any, ...]]


class Schedules:
    """Follows what one call does with the schedules that its function reaches.

    Attributes:
        acts: which of them it steps, in order, and with which arguments.
        refusal: what a replay cannot do again; empty: nothing.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], given: Given) -> None:
        self.acts: list[Act] = []
        self.refusal = ""
        self._schedulers, self._given = schedulers, given
        self._stepped: dict[int, LRScheduler] = {}
        self._is_within = False
        self._after = Tape()
        self._followed = 0

    @contextmanager
    def followed(self) -> Iterator[None]:
        """In this block a call is seen."""
        own = [(scheduler, vars(scheduler).get("step")) for scheduler in self._schedulers]
        for scheduler, _ in own:
            vars(scheduler)["step"] = self._stepping(scheduler, scheduler.step)
        try:
            yield
        finally:
            for scheduler, step in own:
                if step is None:
                    del vars(scheduler)["step"]
                else:
                    vars(scheduler)["step"] = step
        if self._after.numbers.count() > self._followed or self._after.escaped:
            self.refusal = "a learning rate is read after the schedule has changed it"

    def _stepping(self, scheduler: LRScheduler, step: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **kwargs: Any) -> None:
            self._stepped[id(scheduler)] = scheduler
            if self._is_within:  # one of several that are one
                return step(*args, **kwargs)
            if kwargs or any(type(value) is not int for value in args):
                self.refusal = f"{type(scheduler).__name__}.step is given what may change"
            self.acts.append((scheduler, args))
            self._given.put_back()
            self._is_within = True
            try:
                return step(*args, **kwargs)
            finally:
                self._is_within = False
                self._given.follow(self._after)
                self._followed += len(self._given.places)

        return call

    def explained(self, changes: Iterable[Change]) -> list[Change]:
        """Changes that are not of these schedules themselves."""
        owners = {id(of) for s in self._stepped.values() for of in (s, vars(s))}
        return [change for change in changes if id(change.owner) not in owners]

    def stepped(self) -> list[LRScheduler]:
        """Those that changed."""
        return list(self._stepped.values())


def same_acts(a: Sequence[Act], b: Sequence[Act]) -> bool:
    """Whether two calls stepped the same schedules."""
    return len(a) == len(b) and all(
        x[0] is y[0] and x[1] == y[1] for x, y in zip(a, b, strict=True)
    )


def reads_schedules(codes: dict[CodeType, dict[str, Any]]) -> str:
    """What the user's code asks of a schedule; empty: nothing."""
    for code in codes_of_users(codes):
        if found := _READS.intersection(code.co_names):
            return f"{code.co_name} reads {min(found)} of a schedule that it steps"
    return ""
