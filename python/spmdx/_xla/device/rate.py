# SPDX-License-Identifier: Apache-2.0
"""How fast a program goes through its samples."""

import time


class RateTracker:
    """Counts samples, and tells how many there are a second.

    Args:
        smooth_factor: how much the last rates count, from 0 to 1; None means 0.4.
    """

    def __init__(self, smooth_factor: float | None = None):
        self._smooth = 0.4 if smooth_factor is None else smooth_factor
        self._start = self._last = time.time()
        self._pending, self._total, self._rate = 0.0, 0.0, 0.0

    def add(self, count: float) -> None:
        """Count samples.

        Args:
            count: how many.
        """
        self._pending += count
        self._total += count

    def rate(self) -> float:
        """Samples a second since the last call, smoothed."""
        now = time.time()
        if self._pending and now > self._last:
            fresh = self._pending / (now - self._last)
            kept = self._smooth if self._rate else 0.0
            self._rate = kept * self._rate + (1 - kept) * fresh
            self._last, self._pending = now, 0.0
        return self._rate

    def global_rate(self) -> float:
        """Samples a second since the start."""
        return self._total / max(time.time() - self._start, 1e-9)
