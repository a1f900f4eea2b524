# SPDX-License-Identifier: Apache-2.0
"""The backend's own collectives between processes, measured beside messages."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spmdx._annotate.mesh import Mesh
from spmdx._machine.exchanges import Step, an_exchange_ns, gathers, often, sums
from spmdx._machine.watching import medians
from spmdx._world import natives

_SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)  # bytes that a device receives
_TURNS = ("direct", "native", "native", "direct")  # what else the machine does changes over time
_LEAST, _MOST = 1e-3, 1e3

Points = tuple[tuple[float, float], ...]


class Shares(NamedTuple):
    """Multiples of the time of messages, by bytes; none where nothing was measured."""

    gathers: Points = ()
    sums: Points = ()


def native_shares(mesh: Mesh) -> Shares:
    """How long native collectives over "x" take, as multiples of the time of messages, by bytes.

    Nothing is measured where the user allows one way alone: ``SPMDX_COLLECTIVES``, and for sums
    ``SPMDX_DETERMINISTIC``.
    """
    agreed = natives.policy()
    if agreed.way != "auto":
        return Shares()
    measured: list[Callable[[Mesh, int], Step]]
    measured = [gathers, sums] if agreed.sums else [gathers]
    steps = [(kind(mesh, size), often(size)) for kind in measured for size in _SIZES]
    times: dict[str, list[np.ndarray]] = {"direct": [], "native": []}
    for way in _TURNS:
        with natives.planned(way):
            times[way].append(medians(steps, an_exchange_ns, rounds=1))
    shares = np.mean(times["native"], axis=0) / np.mean(times["direct"], axis=0)
    shares = shares.clip(_LEAST, _MOST).round(3).reshape(len(measured), len(_SIZES))
    sizes = np.array(_SIZES, dtype=float)
    return Shares(*(tuple(zip(sizes.tolist(), one.tolist(), strict=True)) for one in shares))
