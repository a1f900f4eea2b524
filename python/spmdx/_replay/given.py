# SPDX-License-Identifier: Apache-2.0
"""Numbers that a replay is given: those in dicts of the program, as learning rates, which change."""

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

from spmdx._replay.tape import HostFloat, Tape
from spmdx._replay.unfit import Unfit
from spmdx._replay.watch import Watch

MOST = 64  # of one function

Place = tuple[dict[Any, Any], Any]  # a dict and a key


class Given:
    """Places whose numbers change between calls."""

    def __init__(self) -> None:
        self.places: list[Place] = []

    def explain(self, watch: Watch, written: Set[int]) -> str:
        """The first change that a replay cannot take as it is; empty: there is none.

        Args:
            watch: what the program was.
            written: tensors of the host that replays write to, by ``id``.
        """
        known = {(id(owner), repr(key)) for owner, key in self.places}
        for change in watch.changes():
            if change.tensor is not None and id(change.tensor) in written:
                continue
            numbers = change.numbers
            if not numbers or not all((id(d), repr(key)) in known for d, key in numbers):
                return change.sentence()
        return ""

    def learn(self, watch: Watch, written: Set[int]) -> bool:
        """Takes what changed for such numbers; whether that explains all, and some were new."""
        known = {(id(owner), repr(key)) for owner, key in self.places}
        fresh: list[Place] = []
        for change in watch.changes():
            if change.tensor is not None and id(change.tensor) in written:
                continue
            if not change.numbers:
                return False
            fresh += [(d, k) for d, k in change.numbers if (id(d), repr(k)) not in known]
        if not fresh or len(self.places) + len(fresh) > MOST:
            return False
        self.places += fresh
        return True

    def numbers(self) -> list[float]:
        """What they are now.

        Raises:
            Unfit: one is no float any more.
        """
        numbers = [owner.get(key) for owner, key in self.places]
        for number, (_, key) in zip(numbers, self.places, strict=True):
            if type(number) is not float:
                raise Unfit(f"the number {key!r} is a {type(number).__name__} now")
        return numbers

    @contextmanager
    def followed(self, tape: Tape) -> Iterator[None]:
        """In this block a tape follows the numbers."""
        numbers = self.numbers()
        followed = [tape.given(i, number) for i, number in enumerate(numbers)]
        for (owner, key), number in zip(self.places, followed, strict=True):
            owner[key] = number
        try:
            yield
        finally:
            tape.is_open = False
            self._put_back(followed, numbers)

    def _put_back(self, followed: Sequence[float], numbers: Sequence[float]) -> None:
        for (owner, key), number, plain in zip(self.places, followed, numbers, strict=True):
            if owner.get(key) is number:
                owner[key] = plain
            elif isinstance(owner.get(key), HostFloat):
                owner[key] = float.__add__(owner[key], -0.0)
