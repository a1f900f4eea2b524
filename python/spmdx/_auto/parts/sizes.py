# SPDX-License-Identifier: Apache-2.0
"""Of how many samples a microbatch may be: at some sizes a step raises, or computes otherwise."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from spmdx.errors import ShardingError

Dropped = set[tuple[int, int]]


class Sizes:
    """The sizes of microbatches for which a step is what it is for the whole batch.

    A step may refuse a single sample, as batch norm does; and what squeezes all dims of size 1 may
    lose that of a single sample. Where neither happens to one sample and to the batch, it never
    does.
    """

    def __init__(self, samples: int, plan: Callable[[int], Any]):
        """``plan`` plans a step of so many samples, and raises what the step raises."""
        self._samples, self._plan = samples, plan
        self._known: dict[int, Dropped | None] = {}
        self._error: Exception | None = None  # of the largest size that failed

    def has(self, samples: int) -> bool:
        """Whether a microbatch may be of so many samples."""
        one, whole = self._dropped(1), self._dropped(self._samples)
        if one == whole == set():
            return True
        dropped = self._dropped(samples)
        return dropped is not None and (whole is None or dropped <= whole)

    def least(self, samples: int) -> int:
        """The smallest size of at least so many samples, which divides the batch if it can.

        Raises what the step raises, if it does so for all sizes.
        """
        for size in range(samples, self._samples + 1):
            if (size == samples or self._samples % size == 0) and self.has(size):
                return size
        if self._error is not None:
            raise self._error
        return self._samples

    def _dropped(self, samples: int) -> Dropped | None:
        """Dims that are squeezed for so many samples; None where the step raises."""
        if samples not in self._known:
            squeezes = _Squeezes()
            try:
                with squeezes:
                    self._plan(samples)
                self._known[samples] = squeezes.dropped
            except ShardingError:  # the program is wrong, for any number
                raise
            except Exception as error:  # what a step of the user's raises
                self._known[samples] = None
                self._error = error if samples >= max(self._known) else self._error
        return self._known[samples]


class _Squeezes(TorchFunctionMode):
    """Notes numbers of dims before and behind what squeezes tensors, where they are others."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped: Dropped = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_squeeze = getattr(func, "__name__", "") in ("squeeze", "squeeze_")
        before = args[0].dim() if is_squeeze and args else 0
        result = func(*args, **(kwargs or {}))
        if before and isinstance(result, torch.Tensor) and result.dim() != before:
            self.dropped.add((before, result.dim()))
        return result
