# SPDX-License-Identifier: Apache-2.0
"""Numbers that a replay is given: those in dicts of the program which change, as learning rates."""

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from spmdx._replay.state.watch import Change
from spmdx._replay.tape import HostFloat, Tape

MOST = 64  # of one function

Place = tuple[dict[Any, Any], Any]  # a dict and a key


class Given:
    """Places whose numbers change between calls.

    Attributes:
        may_learn: there may come further ones.
        changes: how often there came other ones.
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.may_learn = True
        self.changes = 0

    def explain(self, changes: Iterable[Change], written: Container[int]) -> str:
        """The first change that a replay cannot take as it is; empty: there is none.

        Args:
            changes: how the program is other than it was.
            written: tensors of the host that replays write to, by ``id``.
        """
        known = self._known()
        for change in changes:
            if change.tensor is not None and id(change.tensor) in written:
                continue
            if not change.numbers or not known.issuperset(map(_name, change.numbers)):
                return change.sentence()
        return ""

    def learn(self, changes: Iterable[Change], written: Container[int]) -> bool:
        """Takes what changed for such numbers; whether that explains all, and some were new."""
        known = self._known()
        fresh: list[Place] = []
        for change in changes:
            if change.tensor is not None and id(change.tensor) in written:
                continue
            if not change.numbers:
                return False
            fresh += [place for place in change.numbers if _name(place) not in known]
        if not fresh or not self.may_learn or len(self.places) + len(fresh) > MOST:
            return False
        self.places += fresh
        self.changes += 1
        return True

    def _known(self) -> set[tuple[int, str]]:
        return set(map(_name, self.places))

    def drop_others(self) -> bool:
        """Leaves out what is no float any more; whether there was any."""
        floats = [place for place in self.places if type(place[0].get(place[1])) is float]
        had = len(self.places)
        self.places = floats
        self.changes += len(floats) < had
        return len(floats) < had

    def numbers(self) -> list[float]:
        """What they are now. REQUIRES: all are floats."""
        return [owner[key] for owner, key in self.places]

    @contextmanager
    def followed(self, tape: Tape, first: int) -> Iterator[None]:
        """In this block a tape follows the numbers, which are given behind so many others."""
        self.follow(tape, first)
        try:
            yield
        finally:
            tape.is_open = False
            self.put_back()

    def follow(self, tape: Tape, first: int = 0) -> None:
        """From now on a tape follows the numbers."""
        for i, ((owner, key), number) in enumerate(zip(self.places, self.numbers(), strict=True)):
            owner[key] = tape.given(first + i, number)

    def put_back(self) -> None:
        """From now on nothing follows them."""
        for owner, key in self.places:
            if isinstance(owner.get(key), HostFloat):
                owner[key] = float.__add__(owner[key], -0.0)


def _name(place: Place) -> tuple[int, str]:
    return id(place[0]), repr(place[1])
