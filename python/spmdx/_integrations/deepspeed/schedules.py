# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's schedules of the learning rate, by their names in a config."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from spmdx.errors import ShardingError

Rate = Callable[[int, float], float]  # of the step and the optimizer's own rate


def _warmed(step: int, steps: int, kind: str) -> float:
    """From 0 to 1 within ``steps``."""
    if step >= steps:
        return 1.0
    return step / steps if kind == "linear" else math.log(step + 1) / math.log(steps)


def _warmup(
    warmup_min_lr: float = 0.0,
    warmup_max_lr: float | None = None,
    warmup_num_steps: int = 1000,
    warmup_type: str = "log",
) -> Rate:
    steps = max(2, warmup_num_steps)

    def rate(step: int, own: float) -> float:
        most = own if warmup_max_lr is None else warmup_max_lr
        part = 0.0 if step < 0 else _warmed(step, steps, warmup_type)
        return warmup_min_lr + (most - warmup_min_lr) * part

    return rate


def _warmup_decay(
    total_num_steps: int,
    warmup_min_lr: float = 0.0,
    warmup_max_lr: float = 0.001,
    warmup_num_steps: int = 1000,
    warmup_type: str = "log",
) -> Rate:
    steps = max(2, warmup_num_steps)
    warm = _warmup(warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type)

    def rate(step: int, own: float) -> float:
        if step < steps:
            return warm(step, own)
        left = max(0.0, (total_num_steps - step) / max(1.0, total_num_steps - steps))
        return warmup_min_lr + (warmup_max_lr - warmup_min_lr) * left

    return rate


def _warmup_cosine(
    total_num_steps: int,
    warmup_min_ratio: float = 0.0,
    warmup_num_steps: int = 1000,
    cos_min_ratio: float = 0.0001,
    warmup_type: str = "log",
) -> Rate:
    steps = max(2, warmup_num_steps)

    def rate(step: int, own: float) -> float:
        if step < 0:
            return 0.0
        if step < steps:
            part = _warmed(step, steps, warmup_type)
            return own * (warmup_min_ratio + (1 - warmup_min_ratio) * part)
        passed = min(1.0, (step - steps + 1) / max(1, total_num_steps - steps))
        wave = (1 + math.cos(math.pi * passed)) / 2
        return own * max(0.0, cos_min_ratio + (1 - cos_min_ratio) * wave)

    return rate


def _range_test(
    lr_range_test_min_lr: float = 1e-3,
    lr_range_test_step_size: int = 2000,
    lr_range_test_step_rate: float = 1.0,
    lr_range_test_staircase: bool = False,
) -> Rate:
    def rate(step: int, own: float) -> float:
        passed = (step + 1) / lr_range_test_step_size
        passed = math.floor(passed) if lr_range_test_staircase else passed
        return lr_range_test_min_lr * (1 + lr_range_test_step_rate * passed)

    return rate


_MADE: dict[str, Callable[..., Rate]] = {
    "LRRangeTest": _range_test,
    "WarmupLR": _warmup,
    "WarmupDecayLR": _warmup_decay,
    "WarmupCosineLR": _warmup_cosine,
}


class Schedule:
    """Sets the learning rates of an optimizer after each of its steps; none has been made yet."""

    def __init__(self, optimizer: torch.optim.Optimizer, rate: Rate):
        self._optimizer, self._rate = optimizer, rate
        self._own = [float(group["lr"]) for group in optimizer.param_groups]
        self.last_batch_iteration = -1
        self._set()

    def _set(self) -> None:
        for group, own in zip(self._optimizer.param_groups, self._own, strict=True):
            group["lr"] = self._rate(self.last_batch_iteration, own)

    def step(self) -> None:
        self.last_batch_iteration += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        return [group["lr"] for group in self._optimizer.param_groups]

    get_lr = get_last_lr

    def state_dict(self) -> dict[str, Any]:
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.last_batch_iteration = state_dict["last_batch_iteration"]
        self._set()


def make_schedule(said: tuple[str, dict[str, Any]], optimizer: torch.optim.Optimizer) -> Any:
    """The schedule of a config's section.

    Raises:
        ShardingError: its type or a parameter is not known here.
    """
    kind, params = said
    if kind not in _MADE:
        raise ShardingError(
            f"scheduler.type is {kind!r}. Expected one of {', '.join(_MADE)}. Pass another one as "
            "lr_scheduler, such as torch.optim.lr_scheduler.OneCycleLR."
        )
    known = inspect.signature(_MADE[kind]).parameters
    for name in params:
        if name not in known:
            raise ShardingError(
                f"scheduler.params.{name} is no parameter of {kind}. Expected some of "
                f"{', '.join(known)}. Mend it, or leave it out."
            )
    for name, one in known.items():
        if one.default is one.empty and name not in params:
            raise ShardingError(f"scheduler.params lacks {name}. Expected it for {kind}. Write it.")
    if params.get("warmup_type", "log") not in ("log", "linear"):
        raise ShardingError(
            f"scheduler.params.warmup_type is {params['warmup_type']!r}. Expected 'log' or "
            "'linear'. Write one of them."
        )
    return Schedule(optimizer, _MADE[kind](**params))
