# SPDX-License-Identifier: Apache-2.0
"""Calls of a function with arguments that differ by tensors alone, and the step they send."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

import spmdx._C as _C
from spmdx._replay.arguments import Arguments
from spmdx._replay.given import Given
from spmdx._replay.host import Write, increments, same_writes
from spmdx._replay.results import Results
from spmdx._replay.schedules import Act, same_acts
from spmdx._replay.state.observed import Observed
from spmdx._replay.state.watch import Watch
from spmdx._replay.unfit import Unfit

NONE: Any = object()
# So many calls in a row have to be alike: with numbers that change, a third one confirms what two
# told of how they are computed.
ALIKE, ALIKE_WITH_NUMBERS = 2, 3
FIRST_CHECK, BETWEEN_CHECKS = 16, 4  # replays until a call is traced to compare; then times this


@dataclass
class Call:
    """A traced call that may be replayed."""

    captured: _C.replays.Captured
    numbers: _C.replays.HostNumbers
    writes: Sequence[Write]
    written: Mapping[int, torch.Tensor]
    acts: Sequence[Act]
    stepped: Sequence[LRScheduler]
    results: Results
    observed: Observed
    adds: bool = False  # what it writes is done with the arithmetic

    def let_add(self) -> None:
        """What the call writes is done with its arithmetic, where it only counts."""
        counts = increments(self.writes)
        self.adds = bool(counts)
        for tensor, by in counts or ():
            self.numbers.add_increment(tensor, by)

    def differs(self, other: "Call") -> str:
        """How another call was unlike this one; empty: it was not."""
        if not self.results.are_alike(other.results):
            return "it returns other constants from call to call"
        if not self.observed.codes.keys() <= other.observed.codes.keys():
            return "it runs other code from call to call"
        if not same_acts(self.acts, other.acts):
            return "it steps other schedules from call to call"
        if not same_writes(self.writes, other.writes):
            return "it writes otherwise to tensors of the host from call to call"
        if not self.numbers.can_repeat():
            return "its arithmetic on the host is not done as Python does it"
        return self.captured.differs(other.captured)


@dataclass
class Shared:
    """What changes from call to call of a function, and replays follow.

    Attributes:
        given: numbers in the state that it reads.
        written: tensors of the host that its calls write to, by ``id``.
        stepped: schedules that its calls step, by ``id``.
        follows_floats: floats that are arguments may change.
        mesh: the global one.
    """

    given: Given = field(default_factory=Given)
    written: dict[int, torch.Tensor] = field(default_factory=dict)
    stepped: dict[int, LRScheduler] = field(default_factory=dict)
    follows_floats: bool = True
    mesh: Any = None

    @property
    def follows(self) -> bool:
        """Whether floats that are arguments are followed now."""
        return self.follows_floats and self.given.may_learn

    def version(self) -> tuple[int, int, int, bool]:
        """Another one where calls follow more, or other things, than before."""
        return self.given.changes, len(self.written), len(self.stepped), self.follows


class Variant:
    """What is known of the calls.

    Attributes:
        gradients: which of the tensors that the function reaches have one; None: not known yet.
        watch: the state that the latest traced call read.
        shared: what all variants of a function know.
        calls: the latest traced calls that may be replayed and are alike, the last one first.
        is_ready: they are enough.
    """

    def __init__(self, arguments: Arguments, gradients: str | None, shared: Shared) -> None:
        self.arguments = arguments.without_tensors()
        self.gradients = gradients
        self.watch: Watch | None = None
        self.shared = shared
        self.calls: list[Call] = []
        self.is_ready = False
        self._version = shared.version()
        self._until_check = FIRST_CHECK
        self._between_checks = FIRST_CHECK

    def look(self, watch: Watch) -> None:
        """Takes what was seen after a traced call."""
        self.watch = watch
        watch.let_change(self.shared.written.values())
        for scheduler in self.shared.stepped.values():
            watch.forget(scheduler)

    def forget(self) -> None:
        """The next call that may be replayed is the first of those that have to be alike."""
        self.calls = []
        self.is_ready = False

    def changed(self) -> str:
        """What changed since the latest call that a replay cannot take as it is; empty: nothing."""
        if self.watch is None:
            return ""
        if self.shared.given.drop_others():
            self.forget()
        changes = list(self.watch.changes())
        if not changes:
            return ""
        if self.shared.given.learn(changes, self.shared.written):
            self.forget()
            return ""
        return self.shared.given.explain(changes, self.shared.written)

    def replay(self, arguments: Arguments) -> Any:
        """What the call returns, or ``NONE`` where it is to be traced.

        Raises:
            Unfit: something has changed.
        """
        if not self.is_ready:
            return NONE
        if reason := self.changed():
            raise Unfit(reason)
        if self._version != self.shared.version():  # what was constant in its calls is followed now
            self.forget()
        if not self.is_ready or self._is_checked():
            return NONE
        call = self.calls[0]
        if reason := call.captured.misfit(arguments.tensors):
            raise Unfit(reason)
        try:
            if not self._do_again(call, arguments):
                return NONE
            made = call.captured.send(arguments.tensors)
        except BaseException:
            call.numbers.restore()
            raise
        for scheduler, args in call.acts:
            scheduler.step(*args)
        return call.results.of(made, arguments.tensors)

    def _is_checked(self) -> bool:
        """Whether this call is traced, to compare it with what a replay would have sent."""
        self._until_check -= 1
        if self._until_check > 0:
            return False
        self._between_checks *= BETWEEN_CHECKS
        self._until_check = self._between_checks
        return True

    def _do_again(self, call: Call, arguments: Arguments) -> bool:
        """Does what the call does on the host: it writes to tensors, and computes numbers.

        Where these are numbers for which nobody knows what the function does, nothing is done.
        """
        if call.numbers.count() == 0 and not call.writes and not call.written:
            return True
        floats = arguments.floats if self.shared.follows else []
        given = floats + self.shared.given.numbers()
        call.numbers.save()
        if not call.adds:
            with torch.no_grad():
                for function, args, kwargs in call.writes:
                    function(*args, **kwargs)
        if call.numbers.repeat(given):
            return True
        call.numbers.restore()
        return False

    def note(self, call: Call) -> str:
        """A call was traced that may be replayed; why it is unlike those before, if it is."""
        self.shared.written.update(call.written)
        self.shared.stepped.update({id(one): one for one in call.stepped})
        if self._version != self.shared.version():
            self.forget()
            self._version = self.shared.version()
        needed = ALIKE_WITH_NUMBERS if call.numbers.count() else ALIKE
        before = self.calls[: needed - 1]
        reason = call.differs(before[0]) if before else ""
        if reason:
            self.calls = [call]
            self.is_ready = False
            return reason
        self.is_ready = False
        if len(before) == needed - 1:
            call.let_add()
            call.numbers.hold([one.numbers for one in before])
            reason = call.captured.bind_numbers([one.captured for one in before])
            self.is_ready = not reason
        self.calls = [call] if reason else [call, *before]
        return reason
