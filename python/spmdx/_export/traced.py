# SPDX-License-Identifier: Apache-2.0
"""The program of one step as it was traced, with what its arguments hold."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._auto.effects.apart import Effects
from spmdx._auto.effects.reach import Reach
from spmdx._program.plan import plan_only
from spmdx._program.step import held
from spmdx.errors import ShardingError

Of = torch.Tensor | Sequence[torch.Tensor] | Callable[[], Any]


def traced(of: Of) -> _C.Traced:
    """What computes tensors, or what a step does up to its end; nothing runs.

    Raises:
        ShardingError: it is neither, nothing is traced, or annotations have two meshes or a
            sharding that Shardy has not.
    """
    if isinstance(of, torch.Tensor):
        of = [of]
    if isinstance(of, list | tuple) and of and all(isinstance(t, torch.Tensor) for t in of):
        return _C.traced(list(of))
    if not callable(of):
        raise ShardingError(
            f"what is exported is {_kind(of)}. Expected a tensor, a list of tensors, or the "
            "function of a step, which is called without arguments. Write spmdx.export.stablehlo("
            "lambda: step(batch)) for one with arguments."
        )
    return _of_step(of)


def _kind(of: Any) -> str:
    return f"an empty {type(of).__name__}" if of in ([], ()) else f"a {type(of).__name__}"


class _Ended(BaseException):
    """The step is over: what it does behind its end is not asked for."""


class _End:
    """Takes the program at the end of a step, and ends the call."""

    def __init__(self) -> None:
        self.program: _C.Traced | None = None

    def end_microbatch(self) -> None:
        self.take()
        raise _Ended

    def take(self) -> None:
        self.program = _C.traced(None)

    @property
    def ran_inside(self) -> bool:
        return False

    @ran_inside.setter
    def ran_inside(self, ran: bool) -> None:  # by a sync that waits, which ends the step as well
        self.end_microbatch()


def _of_step(step: Callable[[], Any]) -> _C.Traced:
    end = _End()

    def once() -> None:
        result = step()  # which is held while the program is taken
        end.take()
        del result

    effects = Effects(once, Reach(step, ()), torch.nn.Module())
    with plan_only():
        held.append(end)
        try:
            effects.call()
        except _Ended:
            pass
        finally:
            held.remove(end)
    if end.program is None or not end.program.row()["results"]:
        raise ShardingError(
            "the step traces nothing. Expected one that computes tensors on device 'spmdx'. Export "
            "a function that calls the model."
        )
    return end.program
