# SPDX-License-Identifier: Apache-2.0
"""spmdx.compile: a step function is traced some times, and from then on its step is sent again."""

import functools
import operator
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch

import spmdx._C as _C
from spmdx import errors
from spmdx._annotate.global_mesh import get_global_mesh
from spmdx._base import logs
from spmdx._program.step import held
from spmdx._replay.arguments import Arguments
from spmdx._replay.trace import Trace
from spmdx._replay.unfit import Unfit
from spmdx._replay.variant import NONE, Shared, Variant

P = ParamSpec("P")
R = TypeVar("R")

MOST_TRACES = 24  # in a row, until a function is traced for good
MOST_VARIANTS = 16  # captured steps of one function


class _Running:
    """A call that runs, as long as it lives."""


class Compiled(Generic[P, R]):
    """A function whose calls are sent again without running its Python, where that is the same.

    Attributes:
        replayed: how many calls were sent again.
        traced: how many calls ran the function.
        reasons: why calls were traced that had been captured, or could not be; the latest last.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        self._variants: list[Variant] = []
        self._shared = Shared()
        self._leaves: list[torch.Tensor] = []  # that the function reaches
        self._in_a_row = 0
        self._is_given_up = False
        self._running: dict[str, weakref.ref[_Running]] = {}
        self._of_classes: dict[type, Compiled[..., Any]] = {}
        self._of: Compiled[..., Any] | None = None  # of the class, where this is of one object
        self.replayed = 0
        self.traced = 0
        self.reasons: list[str] = []

    def __reduce__(self) -> Any:
        return Compiled, (self._function,)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """Of each object its own, which lives as long as the object."""
        if owner is None:
            return self
        method = self._function.__get__(owner, kind)
        if isinstance(owner, type):
            return self._of_classes.setdefault(owner, Compiled(method))
        if not hasattr(owner, "__dict__"):
            return method
        key = f"_spmdx_compiled_{self._name}"
        found = vars(owner).get(key)
        if not isinstance(found, Compiled) or found._of is not self:
            found = vars(owner)[key] = Compiled(method)
            found._of = self
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if held or _C.planning_only():
            return self._function(*args, **kwargs)
        if self._is_given_up:
            return self._run(args, kwargs)
        own = _Running()  # one call at a time: others, and calls within it, run the function
        reference = weakref.ref(own)
        running = self._running.setdefault("call", reference)
        if running is not reference and running() is not None:
            return self._function(*args, **kwargs)
        self._running["call"] = reference  # the one before was left by an interrupt
        try:
            return self._call(args, kwargs)
        finally:
            del own

    def _run(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call that is a step of its own."""
        _C.flush()
        result = self._function(*args, **kwargs)
        _C.flush()
        return result

    def _call(self, args: Any, kwargs: dict[str, Any]) -> Any:
        try:
            arguments = Arguments(args, kwargs)
            variant = self._variant(arguments)
        except Unfit as unfit:
            self._in_a_row += 1
            self.traced += 1
            self._note(str(unfit))
            return self._run(args, kwargs)
        try:
            result = variant.replay(arguments)
        except Unfit as unfit:
            variant.forget()
            self._note(str(unfit))
            result = NONE
        if result is NONE:
            return self._trace(variant, arguments, args, kwargs)
        self.replayed += 1
        self._in_a_row = 0
        return result

    def _variant(self, arguments: Arguments) -> Variant:
        if (mesh := get_global_mesh()) is not self._shared.mesh:
            self._shared.mesh = mesh
            self._variants.clear()
        gradients = _C.replays.have_gradients(self._leaves)
        follows = self._shared.follows
        for variant in self._variants:
            is_alike = variant.arguments.are_alike(arguments, follows)
            if is_alike and variant.gradients in (None, gradients):
                variant.gradients = gradients
                return variant
        if len(self._variants) == MOST_VARIANTS:
            raise Unfit(f"it was called with {MOST_VARIANTS} other sets of constants before")
        self._variants.append(Variant(arguments, gradients, self._shared))
        return self._variants[-1]

    def _trace(self, variant: Variant, arguments: Arguments, args: Any, kwargs: Any) -> Any:
        self.traced += 1
        self._in_a_row += 1
        trace = Trace(self._function, variant, arguments)
        result = trace.run(args, kwargs)
        self._reach(variant)
        if trace.reason:
            self._note(trace.reason)
        return result

    def _reach(self, variant: Variant) -> None:
        """Other tensors than before: which of them have gradients tells variants apart."""
        leaves = [tensor for _, tensor in variant.watch.tensors] if variant.watch else []
        if len(leaves) == len(self._leaves) and all(map(operator.is_, leaves, self._leaves)):
            return
        self._leaves = leaves
        self._variants = [variant]
        variant.gradients = None

    def _note(self, reason: str) -> None:
        if not self.reasons or self.reasons[-1] != reason:
            self.reasons.append(reason)
        logs.running.debug("%s is traced, since %s", self._name, reason)
        if self._in_a_row == MOST_TRACES // 2 and self._shared.follows_floats:
            self._shared.follows_floats = False  # constants, of which there may be few
            self._variants.clear()
        if self._in_a_row < MOST_TRACES or self._is_given_up:
            return
        self._is_given_up = True
        self._variants.clear()
        errors.warn(
            f"{self._name} was compiled and is traced at each call, since {reason}. Expected a "
            "function that reads and changes nothing but tensors of the device and its arguments. "
            "Move what changes out of it, or leave out spmdx.compile."
        )


@overload
def compile(function: Callable[P, R]) -> Compiled[P, R]: ...
@overload
def compile(function: None = None) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
def compile(function: Callable[P, R] | None = None) -> Any:
    """Replay a step function: its Python runs for the first calls, then its step is sent again.

    A call is sent again where it would record the same step: arguments of the same shapes, dtypes
    and shardings, the same parameters, settings of PyTorch, and state that its Python reads. That
    is looked at before each call, and where it changed the function runs as it would without this.
    The same numbers come out: values, gradients, states, and the random numbers that the call would
    have drawn. A compiled call is a step of its own, and the tensors that it makes carry no
    graph: it goes backward within.

    A function is not replayed that reads a value of the device, calls what is not pure (``print``,
    ``time.time``, NumPy), changes Python state, or copies tensors from the host. It runs each time
    then; after 24 such calls in a row a warning says why, and it is not tried again.

    Args:
        function: a function of tensors of the device, and of constants.

    Returns:
        The function, with ``replayed`` and ``traced``, which count its calls, and ``reasons``, why
        calls were traced that could have been replayed.

    Example:
        >>> import torch, spmdx
        >>> w = torch.ones(4, requires_grad=True, device="spmdx")
        >>> sgd = torch.optim.SGD([w], lr=0.5)
        >>> @spmdx.compile
        ... def train(x):
        ...     loss = (w * x).sum()
        ...     sgd.zero_grad()
        ...     loss.backward()
        ...     sgd.step()
        ...     return loss.detach()
        >>> losses = [train(torch.ones(4, device="spmdx")) for _ in range(5)]
        >>> [loss.item() for loss in losses], train.replayed
        ([4.0, 2.0, 0.0, -2.0, -4.0], 2)
    """
    return compile if function is None else Compiled(function)
