# SPDX-License-Identifier: Apache-2.0
"""Stands in for several processes in one: which devices are whose, and how they exchange values."""

import contextlib
import threading

from spmdx._world import devices
from spmdx._world import processes as real


class World:
    """``processes`` processes of ``each`` devices; ``here`` is the one that this thread plays.

    They take turns: a process goes on until it ends or meets the others.
    """

    def __init__(self, monkeypatch, processes, each):
        self.processes = processes
        self._thread = threading.local()
        self._told = [None] * processes
        self._met = threading.Barrier(processes, timeout=20)
        self._turn = threading.Lock()
        self.exchanges = 0
        monkeypatch.setattr(devices, "_count", devices._count)  # meshes write it; it comes back
        monkeypatch.setattr(devices, "own_count", lambda: each)
        monkeypatch.setattr(real, "process_count", lambda: processes)
        monkeypatch.setattr(real, "process_index", lambda: self._thread.index)
        monkeypatch.setattr(real, "exchange", self._exchange)

    @contextlib.contextmanager
    def here(self, index):
        self._thread.index = index
        yield

    def meet(self, value):
        """The values of all processes, once all have come here."""
        self._told[self._thread.index] = value
        self._wait()
        told = list(self._told)
        self._wait()
        return told

    def _wait(self):
        self._turn.release()
        try:
            self._met.wait()
        finally:
            self._turn.acquire()

    def _exchange(self, value, what=""):
        told = self.meet(value)
        self.exchanges += self._thread.index == 0
        return told

    def run(self, program):
        """What ``program(index)`` gives or raises in every process, which run at the same time."""
        results = [None] * self.processes

        def play(index):
            with self._turn, self.here(index):
                try:
                    results[index] = program(index)
                except Exception as error:
                    results[index] = error

        threads = [threading.Thread(target=play, args=(i,)) for i in range(self.processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads), "processes wait for each other"
        return results
