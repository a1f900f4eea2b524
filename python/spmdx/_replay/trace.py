# SPDX-License-Identifier: Apache-2.0
"""One traced call of a function, from which it is learnt whether its calls may be replayed."""

import gc
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._replay.arguments import Arguments
from spmdx._replay.host import HostMode
from spmdx._replay.observed import Observed
from spmdx._replay.results import Results
from spmdx._replay.tape import Tape, following_math
from spmdx._replay.unfit import Unfit
from spmdx._replay.variant import Call, Variant
from spmdx._replay.watch import Watch


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
            observed, result = self._observe(args, kwargs)
        else:
            observed, result = self._capture(watch)
        self._look_around(observed)
        return result

    def _observe(self, args: Any, kwargs: dict[str, Any]) -> tuple[Observed, Any]:
        """Backward passes run in this thread, so that hooks and functions of the user's are seen."""
        with Observed() as observed, torch.autograd.set_multithreading_enabled(False):
            result = self._function(*args, **kwargs)
        return observed, result

    def _capture(self, watch: Watch) -> tuple[Observed, Any]:
        watched = [tensor for _, tensor in watch.tensors]
        tensors = self._arguments.whole()
        tape = Tape()
        mode = HostMode(watch.host, tape)
        if not _C.begin_capture(tensors, watched):
            return self._observe(*self._arguments.of(self._arguments.tensors))
        try:
            with self._variant.given.followed(tape), following_math(), mode:
                observed, result = self._observe(*self._arguments.of(tensors))
        except BaseException:
            _C.abandon_capture()
            self._variant.forget()
            raise
        finally:
            self._write_through(tensors)
        self.reason = self.reason or self._refusal(observed, mode, tape, watch)
        return observed, self._end(result, observed, mode, tape, tensors, watched)

    def _refusal(self, observed: Observed, mode: HostMode, tape: Tape, watch: Watch) -> str:
        if observed.refusal or mode.refusal:
            return observed.refusal or mode.refusal
        if tape.escaped:
            return f"a number that changes from call to call becomes {tape.escaped}"
        changed = self._variant.given.explain(watch, mode.written())
        return f"within it {changed}" if changed else ""

    def _end(
        self,
        result: Any,
        observed: Observed,
        mode: HostMode,
        tape: Tape,
        tensors: list[torch.Tensor],
        watched: list[torch.Tensor],
    ) -> Any:
        try:
            results = Results(result, tensors, watched)
        except Unfit as unfit:
            self.reason = self.reason or str(unfit)
        if self.reason:
            _C.abandon_capture()
            self._variant.forget()
            return result
        made = results.take()
        gc.collect()  # what only cycles hold is not kept
        captured = _C.end_capture(made)
        if isinstance(captured, str):
            self.reason = captured
            self._variant.forget()
            return results.of(made, self._arguments.tensors)
        captured.set_numbers(tape.numbers)
        call = Call(captured, tape.numbers, mode.writes, mode.written(), results, observed)
        self.reason = self._variant.note(call)
        return results.of([tensor.detach() for tensor in made], self._arguments.tensors)

    def _write_through(self, tensors: list[torch.Tensor]) -> None:
        """What was written to copies of views goes to the views."""
        for copy, given in zip(tensors, self._arguments.tensors, strict=True):
            if copy is not given and copy._version > 0:
                given.detach().copy_(copy.detach())
                self.reason = "it writes to an argument that is a view"

    def _look_around(self, observed: Observed) -> None:
        variant = self._variant
        variant.watch = watch = Watch(
            self._function, tuple(self._arguments.constants), {}, observed
        )
        refusal = observed.refusal or watch.refusal
        if refusal:
            self.reason = self.reason or refusal
            variant.forget()
            variant.watch = None
