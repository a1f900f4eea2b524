# SPDX-License-Identifier: Apache-2.0
"""One traced call of a function, from which it is learnt whether its calls may be replayed."""

import gc
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._replay.arguments import Arguments
from spmdx._replay.host import HostMode
from spmdx._replay.results import Results
from spmdx._replay.schedules import Schedules, reads_schedules
from spmdx._replay.state.observed import Observed
from spmdx._replay.state.origins import codes_of_users
from spmdx._replay.state.watch import Watch
from spmdx._replay.tape import Tape, following_math, plain, without_tape
from spmdx._replay.unfit import Unfit
from spmdx._replay.variant import Call, Shared, Variant


class Trace:
    """A call that runs the function.

    Attributes:
        reason: why it cannot be replayed; empty where it can, or nothing is known yet.
    """

    def __init__(
        self, function: Callable[..., Any], variant: Variant, arguments: Arguments
    ) -> None:
        self._function, self._variant, self._arguments = function, variant, arguments
        self.reason = ""

    def run(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls the function; the variant learns what it did."""
        watch = self._variant.watch
        self.reason = self._variant.changed() if watch else ""
        if watch is None or self.reason:
            self._variant.forget()
            _C.flush()
            observed, result = self._observe(args, kwargs)
        else:
            observed, result = self._capture(watch, args, kwargs)
        _C.flush()
        self._look_around(observed)
        return result

    def _observe(self, args: Any, kwargs: dict[str, Any]) -> tuple[Observed, Any]:
        """Backward passes run in this thread, where hooks and functions of the user's are seen."""
        with Observed() as observed, torch.autograd.set_multithreading_enabled(False):
            result = self._function(*args, **kwargs)
        return observed, result

    def _capture(self, watch: Watch, args: Any, kwargs: dict[str, Any]) -> tuple[Observed, Any]:
        shared = self._variant.shared
        seen = _Seen(watch, shared)
        watched = [tensor for _, tensor in watch.tensors]
        if not _C.replays.begin_capture(self._arguments.tensors, watched):
            return self._observe(args, kwargs)
        try:
            floats = self._arguments.floats if shared.follows else []
            followed = [seen.tape.given(i, value) for i, value in enumerate(floats)]
            given = Arguments.with_floats(args, kwargs, followed) if floats else (args, kwargs)
            with (
                shared.given.followed(seen.tape, len(floats)),
                seen.schedules.followed(),
                following_math(),
                seen.host,
            ):
                observed, result = self._observe(*given)
        except BaseException:
            _C.replays.abandon_capture()
            self._variant.forget()
            raise
        self.reason = observed.refusal or seen.refusal(watch, shared, observed)
        for change in watch.changes():  # what the function has kept of numbers that were followed
            change.leave_plain(plain)
        if self._arguments.changed(args, kwargs):
            self.reason = self.reason or "it changes an argument"
        kept = watch.reached() | self._arguments.containers()
        return observed, self._end(result, observed, seen, watched, kept)

    def _end(
        self,
        result: Any,
        observed: Observed,
        seen: "_Seen",
        watched: list[torch.Tensor],
        kept: set[int],
    ) -> Any:
        try:
            results = Results(result, self._arguments.tensors, watched, kept)
        except Unfit as unfit:
            self.reason = self.reason or str(unfit)
            result = without_tape(result)
        if self.reason:
            _C.replays.abandon_capture()
            self._variant.forget()
            return result
        made = results.take()
        gc.collect()  # what only cycles hold is not kept
        captured = _C.replays.end_capture(made)
        if isinstance(captured, str):
            self.reason = captured
            self._variant.forget()
            return results.of(made, self._arguments.tensors)
        captured.set_numbers(seen.tape.numbers)
        self.reason = self._variant.note(seen.call(captured, results, observed))
        return results.of(
            [t.detach() if t.requires_grad else t for t in made], self._arguments.tensors
        )

    def _look_around(self, observed: Observed) -> None:
        # A float that is followed is of a class of its own.
        asks = any("type" in code.co_names for code in codes_of_users(observed.codes))
        self._variant.shared.given.may_learn = not asks
        try:
            watch = Watch(self._function, self._arguments.constants, {}, observed)
            if not watch.refusal:
                self._variant.look(watch)
                return
            refusal = watch.refusal
        except Exception as error:  # of what the program computes where attributes are read
            refusal = f"its state cannot be looked at: {type(error).__name__}: {error}"
        self.reason = self.reason or refusal
        self._variant.forget()
        self._variant.watch = None


class _Seen:
    """What a call did on the host."""

    def __init__(self, watch: Watch, shared: Shared) -> None:
        self.tape = Tape()
        self.host = HostMode(watch.host, shared.written, self.tape)
        self.schedules = Schedules(watch.schedulers, shared.given)

    def refusal(self, watch: Watch, shared: Shared, observed: Observed) -> str:
        """What a replay cannot do again; empty: it can do all."""
        schedules = self.schedules
        if self.host.refusal or schedules.refusal:
            return self.host.refusal or schedules.refusal
        if self.tape.escaped:
            return f"a number that changes from call to call becomes {self.tape.escaped}"
        changes = schedules.explained(watch.changes())
        written = shared.written | self.host.written()
        if schedules.acts and shared.given.learn(changes, written):
            return "the numbers that its schedules change are followed from now on"
        changed = shared.given.explain(changes, written)
        if changed:
            return f"within it {changed}"
        return reads_schedules(observed.codes) if schedules.acts else ""

    def call(self, captured: _C.replays.Captured, results: Results, observed: Observed) -> Call:
        """What a replay does again."""
        return Call(
            captured,
            self.tape.numbers,
            self.host.writes,
            self.host.written(),
            self.schedules.acts,
            self.schedules.stepped(),
            results,
            observed,
        )
