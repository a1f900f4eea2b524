# SPDX-License-Identifier: Apache-2.0
"""Reports of load: what devices do in a step, and what they wait for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spmdx._base.cells import Drawn

if TYPE_CHECKING:
    import rich.table

SHOWN = 16  # kinds of devices in a table, the busiest and the least busy of them


@dataclasses.dataclass(frozen=True)
class DeviceLoad:
    """One device in a step, in nanoseconds that make up the step.

    Attributes:
        device: its id.
        computing_ns: of ops.
        behind_ns: while devices that hold more of uneven parts compute on.
        exposed_ns: while links work, and it has nothing to compute.
        idle_ns: the rest: of a pipeline, its bubble.
    """

    device: int
    computing_ns: int
    behind_ns: int
    exposed_ns: int
    idle_ns: int

    @property
    def step_ns(self) -> int:
        """All four."""
        return self.computing_ns + self.behind_ns + self.exposed_ns + self.idle_ns


@dataclasses.dataclass(frozen=True, repr=False)
class LoadReport(Drawn):
    """How evenly devices are loaded, predicted by the cost model.

    Attributes:
        devices: in the order of the mesh.

    Source: bubble and exposed communication as in D. Narayanan et al., arXiv:2104.04473.
    """

    devices: list[DeviceLoad]

    @property
    def slowest(self) -> DeviceLoad:
        """The one that computes longest."""
        return max(self.devices, key=lambda device: device.computing_ns)

    @property
    def waiting(self) -> float:
        """The share of all devices' time in which they compute nothing."""
        step = sum(device.step_ns for device in self.devices)
        return 1 - sum(device.computing_ns for device in self.devices) / step if step else 0.0

    @property
    def imbalance(self) -> float:
        """How much longer the slowest device computes than devices do on the average: 0 is even."""
        work = sum(device.computing_ns for device in self.devices)
        return self.slowest.computing_ns * len(self.devices) / work - 1 if work else 0.0

    def __str__(self) -> str:
        return (
            f"devices wait for {self.waiting:.1%} of the step; the slowest computes "
            f"{self.imbalance:.1%} longer than the average"
        )

    def __rich_console__(self, console: Any, options: Any) -> Iterator[str | rich.table.Table]:
        import rich.table

        yield str(self)
        drawn = rich.table.Table(title="Load, in ms of a step", title_justify="left")
        for name in ("devices", "computing", "behind", "exposed", "idle"):
            drawn.add_column(name, justify="left" if name == "devices" else "right")
        rows = [*self._alike().items()]
        if len(rows) > SHOWN:
            rows = rows[: SHOWN // 2] + rows[-SHOWN // 2 :]
        for times, ids in rows:
            drawn.add_row(_told(ids), *(f"{ns / 1e6:,.3f}" for ns in times))
        yield drawn

    def _alike(self) -> dict[tuple[int, int, int, int], list[int]]:
        """Ids of devices by their times, those that compute longest first."""
        found: dict[tuple[int, int, int, int], list[int]] = {}
        for d in self.devices:
            times = d.computing_ns, d.behind_ns, d.exposed_ns, d.idle_ns
            found.setdefault(times, []).append(d.device)
        return dict(sorted(found.items(), reverse=True))


def _told(ids: list[int]) -> str:
    """Ids as ``"0-3, 8"``."""
    runs: list[list[int]] = []
    for at in ids:
        if runs and at == runs[-1][1] + 1:
            runs[-1][1] = at
        else:
            runs.append([at, at])
    shown = [f"{a}-{b}" if b > a else str(a) for a, b in runs[:4]]
    return ", ".join(shown) + (f", … ({len(ids)} devices)" if len(runs) > 4 else "")
