# SPDX-License-Identifier: Apache-2.0
"""Starts a program as several processes that meet over loopback, and gathers what they say."""

import dataclasses
import functools
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

from forks import STACKS, Server

PLAYERS = pathlib.Path(__file__).parents[1] / "players"


@dataclasses.dataclass
class Ended:
    """How one process ended: its status (negative: by a signal; None: it had to be killed).

    The messages of one that had to be killed end with the stacks of its threads.
    """

    status: int | None
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@functools.cache
def _server() -> Server:
    return Server()


class Running:
    """The processes of one program. As a context, it leaves none behind."""

    def __init__(self, program: str, processes: int, devices: int = 1, *arguments: str, **settings):
        self._folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self._folder.name)
        path = PLAYERS / program
        if not program.endswith(".py"):
            path = folder / "program.py"
            path.write_text(program)
        port = str(free_port())
        self.started = time.monotonic()
        self.children, self._files = [], []
        for rank in range(processes):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(processes),
                "LOCAL_WORLD_SIZE": str(processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "OMP_NUM_THREADS": "1",
                "SPMDX_NUM_DEVICES": str(devices),
                **{name: str(value) for name, value in settings.items()},
            }
            files = [open(folder / f"{rank}.{kind}", "w+") for kind in ("out", "err")]
            self._files.append(files)
            self.children.append(
                _server().start(
                    [str(path), *arguments], environment, str(folder), *(f.name for f in files)
                )
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.wait()
        for files in self._files:
            for file in files:
                file.close()
        self._folder.cleanup()

    def said(self, rank: int) -> str:
        """What a process has printed so far."""
        return pathlib.Path(self._files[rank][0].name).read_text()

    def wait_for(self, rank: int, text: str, limit: float = 60) -> bool:
        """Whether a process prints ``text`` within ``limit`` seconds, or before it ends."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            if text in self.said(rank):
                return True
            if self.children[rank].poll() is not None:
                return text in self.said(rank)
            time.sleep(0.01)
        return False

    def end(self, limit: float = 120) -> list[Ended]:
        """How each of them ended; those that have not after ``limit`` seconds are killed."""
        until = time.monotonic() + limit
        statuses = []
        for child in self.children:
            try:
                statuses.append(child.wait(max(0.0, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGCONT)
                child.send_signal(STACKS)
                time.sleep(0.2)
                child.kill()
                child.wait()
                statuses.append(None)
        return [
            Ended(status, *(pathlib.Path(file.name).read_text() for file in files))
            for status, files in zip(statuses, self._files, strict=True)
        ]


def run(program: str, processes: int, devices: int = 1, *arguments: str, **settings) -> list[str]:
    """What each process printed; fails if one of them did not end well."""
    with Running(program, processes, devices, *arguments, **settings) as running:
        ended = running.end()
    for rank, how in enumerate(ended):
        assert how.status == 0, f"process {rank} ended with {how.status}:\n{how.out}\n{how.err}"
    return [how.out for how in ended]
