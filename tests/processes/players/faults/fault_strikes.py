# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in one process: each kind of ``fault_drafts.KINDS``, once."""

import os
import signal
import threading
import time

import spmdx
import torch
from fault_drafts import Fault
from fault_models import Raised, kernel

LATE = 0.2  # seconds that others keep a process waiting which is interrupted
RANK = int(os.environ.get("RANK", "0"))


class Interruptions:
    """Ctrl-C, which only this program's own moments may see."""

    def __init__(self) -> None:
        self.welcome = False
        signal.signal(signal.SIGINT, self._heard)

    def _heard(self, *_) -> None:
        if self.welcome:
            self.welcome = False
            raise KeyboardInterrupt

    @staticmethod
    def send(delay: float) -> None:
        def strike() -> None:
            os.kill(os.getpid(), signal.SIGINT)

        if not delay:
            return strike()
        timer = threading.Timer(delay, strike)
        timer.daemon = True
        timer.start()


class Strikes:
    """The faults of one run. Those of a turn stop when it was recovered from.

    ``struck`` names those that this process has met.
    """

    def __init__(self, faults: tuple[Fault, ...]):
        self._left = list(enumerate(faults))
        self.turn = 0  # how often was recovered
        self.struck: list[str] = []
        self.factor = 1.0  # of the learning rate
        self.skips_mark = False
        kernel.left = None

    def calm_down(self) -> None:
        self.turn += 1
        kernel.left, self.factor, self.skips_mark = None, 1.0, False

    def _due(self, step: int, site: str) -> list[tuple[int, Fault]]:
        """Those that strike this process here; a batch may be made ahead, and again."""
        return [
            (n, f)
            for n, f in self._left
            if (f.step, f.site) == (step, site) and f.rank in (None, RANK) and self.turn <= n
        ]

    def on_batch(self, step: int, host: dict[str, torch.Tensor]) -> None:
        for _, fault in self._due(step, "data"):
            self.struck.append(fault.kind)
            if fault.kind == "loader":
                raise Raised(f"the loader of process {RANK} fails")
            if fault.kind == "input":
                host["x"] += 1
                continue
            bad = host["words" if fault.kind == "index" else "bins"].view(-1)
            some = slice(None) if not fault.amount else slice(-fault.amount, None)
            bad[some] = 99

    def keep_waiting(self, step: int, site: str) -> None:
        """Where another process is to be interrupted while it waits."""
        for _, fault in self._left:
            if (fault.kind, fault.step, fault.site) == ("interrupted", step, site):
                if fault.amount == 1 and fault.rank not in (None, RANK) and not self.turn:
                    time.sleep(LATE)

    def on_shards(self, step: int, site: str, tensor: torch.Tensor) -> None:
        """All processes give a tensor shards, and one of them such as do not fit."""
        for n, fault in list(self._left):
            if (fault.kind, fault.step, fault.site) != ("shards", step, site) or self.turn > n:
                continue
            self._left.remove((n, fault))
            boxes = tensor.sharding.boxes(tensor.shape)
            pieces = [
                torch.full([s.stop - s.start for s in boxes[position]], 1e6, dtype=tensor.dtype)
                for position in tensor.mesh.addressable_positions
            ]
            if fault.rank == RANK:
                self.struck.append(fault.kind)
                pieces[-1:] = ([], [pieces[-1].float()], [pieces[-1][None]])[fault.amount]
            tensor.load_local_shards_(pieces)

    def on_trace(self, step: int, site: str, x: torch.Tensor) -> torch.Tensor:
        self.keep_waiting(step, site)
        for n, fault in self._due(step, site):
            if fault.kind == "shards":
                continue
            self._left.remove((n, fault))
            self.struck.append(fault.kind)
            x = getattr(self, "_" + fault.kind.replace(" ", "_"))(fault, x)
        return x

    def _number(self, fault, x):
        self.factor = 2.0
        return x

    def _op(self, fault, x):
        if x.requires_grad:
            return x * 1.5
        with torch.no_grad():
            return x.mul_(1.5)

    def _read(self, fault, x):
        (x.detach().sum() + fault.amount).item()
        return x

    def _mark(self, fault, x):
        spmdx.mark_step()
        return x

    def _no_mark(self, fault, x):
        self.skips_mark = True
        return x

    def _raises(self, fault, x):
        raise Raised(f"process {RANK} has an error of its own")

    def _refused(self, fault, x):
        return x.view(-1, 1009)

    def _kernel(self, fault, x):
        kernel.left = fault.amount
        return x

    def _interrupted(self, fault, x):
        Interruptions.send(fault.delay)
        return x
