# SPDX-License-Identifier: Apache-2.0
"""Metrics: losses and norms read behind the steps, tokens a second, and the share of the peak."""

import collections
import dataclasses
import numbers
import time
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx.errors import ShardingError, naming

TOKENS_A_SECOND, STEPS_A_SECOND, MFU = "tokens_per_second", "steps_per_second", "mfu"


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of one step.

    Attributes:
        step: its number.
        values: numbers by name.
    """

    step: int
    values: dict[str, float]


class Metrics:
    """Takes values of steps as they are logged, and hands them out when they are computed.

    A loss is a tensor on the device that a step in the background computes. ``loss.item()`` would
    wait for it. This class keeps what the tensor shows when it is logged, ends no step and waits
    for none; it looks at each later call whether values are there.

    Args:
        writer: gets each value when it is there: what has ``add_scalar(name, value, step)``, as
            TensorBoard's ``SummaryWriter``, or a function of a :class:`Record`. None: nobody.
        tokens_per_step: of all devices together; with it ``tokens_per_second`` is told.
        flops_per_step: floating-point operations of a step of all devices together, for ``mfu``;
            None counts those of the plan that ran last when a window ends.
        peak_flops: floating-point operations a second of all devices together at most; None takes
            those of the hardware for the dtypes of the plan, times the devices of the mesh.
        every: over how many steps rates are taken.

    Raises:
        ShardingError: an argument is of another kind.

    Example:
        >>> import torch, spmdx
        >>> metrics = spmdx.metrics.Metrics()
        >>> x = torch.ones(4).to("spmdx")
        >>> for step in range(3):
        ...     loss = (x * step).sum()
        ...     metrics.log(loss=loss)
        ...     spmdx.mark_step()
        >>> [record.values["loss"] for record in metrics.close()]
        [0.0, 4.0, 8.0]

    Source: the share of the peak, "model FLOPs utilization", is that of A. Chowdhery et al.,
    PaLM: Scaling Language Modeling with Pathways, 2022, appendix B.
    """

    def __init__(
        self,
        writer: Any = None,
        *,
        tokens_per_step: int | None = None,
        flops_per_step: float | None = None,
        peak_flops: float | None = None,
        every: int = 10,
    ):
        with naming("Metrics"):
            self._write = _writer(writer)
            _require_number("tokens_per_step", tokens_per_step, 1)
            _require_number("flops_per_step", flops_per_step, 0)
            _require_number("peak_flops", peak_flops, 1)
            if isinstance(every, bool) or not isinstance(every, int) or every < 1:
                raise ShardingError(f"every is {every!r}. Expected an int of at least 1. Write 10.")
        self._tokens, self._flops, self._peak = tokens_per_step, flops_per_step, peak_flops
        self._every = every
        self._waiting: collections.deque[tuple[int, dict[str, Any]]] = collections.deque()
        self._ready: list[Record] = []
        self._latest: dict[str, float] = {}
        self._next = 0
        self._window: tuple[int, float] | None = None  # steps and seconds when it began
        self._counted = -1, 0.0, 0.0  # plans that there were, operations, all devices' peak rate

    def log(self, step: int | None = None, /, **values: Any) -> None:
        """Note values of a step; returns at once.

        Args:
            step: its number; None counts the calls, from 0.
            **values: numbers, or tensors of one element on any device.

        Raises:
            ShardingError: a value is neither, or a step comes before one that was noted.
        """
        with naming("Metrics.log"):
            number = self._number(step)
            taken = {name: _taken(name, value) for name, value in values.items()}
        self._next = number + 1
        self._waiting.append((number, {**self._rates(), **taken}))
        self._look()

    def ready(self) -> list[Record]:
        """What was computed since the last call, in the order of steps.

        Example:
            >>> import spmdx
            >>> metrics = spmdx.metrics.Metrics()
            >>> metrics.log(epoch=3)
            >>> metrics.ready()
            [Record(step=0, values={'epoch': 3.0})]
        """
        self._look()
        ready, self._ready = self._ready, []
        return ready

    @property
    def latest(self) -> dict[str, float]:
        """The last value of each name that was computed."""
        self._look()
        return dict(self._latest)

    def close(self) -> list[Record]:
        """Wait for all values; a step that is still recorded is ended.

        Returns:
            What :meth:`ready` has not given yet.

        Raises:
            Exception: what a step raised that computes one of the values.
        """
        while self._waiting:
            self._take(*self._waiting.popleft())
        return self.ready()

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self.close()

    def _number(self, step: Any) -> int:
        if step is None:
            return self._next
        if isinstance(step, bool) or not isinstance(step, int) or step < self._next:
            raise ShardingError(
                f"the step is {step!r}. Expected an int of at least {self._next}, since steps are "
                "noted in order. Write metrics.log(step, loss=loss), or leave it out."
            )
        return step

    def _look(self) -> None:
        """Take what is there; a value that is not holds back those of later steps."""
        while self._waiting and all(map(_is_there, self._waiting[0][1].values())):
            self._take(*self._waiting.popleft())

    def _take(self, step: int, values: dict[str, Any]) -> None:
        numbers = {name: float(value) for name, value in values.items()}
        self._latest.update(numbers)
        record = Record(step, numbers)
        self._ready.append(record)
        self._write(record)

    def _rates(self) -> dict[str, float]:
        """At the end of a window of steps: how fast they went."""
        now = time.perf_counter()
        if self._window is None:
            self._window = self._next, now
            return {}
        begun, since = self._window
        steps, seconds = self._next - begun, now - since
        if steps < self._every or seconds <= 0:
            return {}
        self._window = self._next, now
        a_second = steps / seconds
        found = {STEPS_A_SECOND: a_second}
        if self._tokens is not None:
            found[TOKENS_A_SECOND] = self._tokens * a_second
        flops, peak = self._work()
        if flops and peak:
            found[MFU] = flops * a_second / peak
        return found

    def _work(self) -> tuple[float, float]:
        """Operations of a step, and those that all devices could do in a second."""
        if self._flops is None or self._peak is None:
            plans = _C.counters()["plans_compiled"]
            if plans != self._counted[0]:
                self._counted = plans, *_work_of_plan()
        _, flops, peak = self._counted
        if self._flops is not None:
            flops = self._flops
        return flops, peak if self._peak is None else self._peak


def _work_of_plan() -> tuple[float, float]:
    """Operations of the last plan as one device would do them, and the peak rate of all devices.

    The peak is that of the dtypes that the plan computes with.
    """
    flops, devices, seconds = _C.work_of_last() or (0.0, 1, 0.0)
    return flops, devices * flops / seconds if seconds else 0.0


def _writer(writer: Any) -> Callable[[Record], object]:
    if writer is None:
        return lambda record: None
    if hasattr(writer, "add_scalar"):

        def add(record: Record) -> None:
            for name, value in record.values.items():
                writer.add_scalar(name, value, record.step)

        return add
    if not callable(writer):
        raise ShardingError(
            f"the writer is {writer!r}. Expected what has add_scalar, a function or None. Write "
            "torch.utils.tensorboard.SummaryWriter(folder), or print."
        )
    return writer


def _require_number(name: str, value: Any, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise ShardingError(
            f"{name} is {value!r}. Expected a number of at least {least}, or None. Leave it out, "
            f"or write {name}=4096."
        )


def _taken(name: str, value: Any) -> Any:
    """A number, or a tensor that shows what ``value`` shows now."""
    if isinstance(value, torch.Tensor) and (value.is_complex() or value.is_meta):
        kind = "on device 'meta'" if value.is_meta else f"of {value.dtype}"
        raise ShardingError(
            f"{name} is a tensor {kind}. Expected one that holds a real number. Write "
            f"{name}={name}.abs(), or leave it out."
        )
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.detach()
        return _C.snapshot(value) if _C.is_lazy(value) else value.clone()
    if isinstance(value, torch.Tensor):
        raise ShardingError(
            f"{name} is a tensor of shape {tuple(value.shape)}. Expected one element. Write "
            f"{name}={name}.mean()."
        )
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ShardingError(
            f"{name} is {value!r}. Expected a number or a tensor of one element. Pass the loss."
        )
    return float(value)


def _is_there(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    return _C.is_computed(value) if _C.is_lazy(value) else True


__all__ = ["Metrics", "Record"]
