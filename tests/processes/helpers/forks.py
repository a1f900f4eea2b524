# SPDX-License-Identifier: Apache-2.0
"""A process that has imported torch once, and forks programs from then on.

Programs see what they would see if started afresh: arguments, environment, files, exit status,
messages. What reads the environment when a process starts (an allocator) has read the server's.
"""

import atexit
import contextlib
import faulthandler
import gc
import json
import os
import pathlib
import runpy
import select
import signal
import subprocess
import sys
import threading
from typing import Any

STACKS = signal.SIGUSR1  # makes a program print the stacks of its threads


class Child:
    """A program that the server forked; a subprocess.Popen as far as it goes."""

    def __init__(self, server: "Server", pid: int):
        self._server, self.pid = server, pid

    def poll(self) -> int | None:
        return self._server.statuses.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status; negative: the signal that ended it."""
        with self._server.changed:
            if not self._server.changed.wait_for(lambda: self.poll() is not None, timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self._server.statuses[self.pid]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, which is told later
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """The client's side."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}  # of those that have ended, by pid
        self.changed = threading.Condition()
        self._started: list[int] = []
        self._asking = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.close)

    def _listen(self) -> None:
        for line in self._process.stdout:
            said = json.loads(line)
            with self.changed:
                if "status" in said:
                    self.statuses[said["pid"]] = said["status"]
                else:
                    self.statuses.pop(said["pid"], None)  # an old child had the same number
                    self._started.append(said["pid"])
                self.changed.notify_all()

    def start(
        self, arguments: list[str], environment: dict[str, str], folder: str, out: str, err: str
    ) -> Child:
        """Forks ``python ARGUMENTS``.

        Args:
            arguments: a program's file, and what it is told.
            environment: all of it.
            folder: where it runs.
            out: the file that takes what it prints.
            err: the file that takes its messages.
        """
        asked = {"argv": arguments, "env": environment, "cwd": folder, "out": out, "err": err}
        with self._asking, self.changed:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            while not self._started:
                if not self.changed.wait(1) and self._process.poll() is not None:
                    raise RuntimeError(f"the server has ended with {self._process.returncode}")
            return Child(self, self._started.pop(0))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


# ---- the server's side ------------------------------------------------------------------------


def serve() -> dict[str, Any] | None:
    """Forks what it is asked for. Returns in each child what it shall run, and None at the end."""
    talk = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    asked = os.fdopen(0, closefd=False)
    children: dict[int, int] = {}  # pid by pidfd
    while True:
        ready, _, _ = select.select([0, *children], [], [])
        for fd in (fd for fd in ready if fd in children):
            pid = children.pop(fd)
            os.close(fd)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(talk, (json.dumps({"pid": pid, "status": status}) + "\n").encode())
        if 0 not in ready:
            continue
        line = asked.readline()
        if not line:
            for pid in children.values():
                os.kill(pid, signal.SIGKILL)
            return None
        pid = os.fork()
        if pid == 0:
            for fd in (talk, *children):
                os.close(fd)
            return json.loads(line)
        children[os.pidfd_open(pid)] = pid
        os.write(talk, (json.dumps({"pid": pid}) + "\n").encode())


def play(asked: dict[str, Any]) -> None:
    """Runs a program as ``python PROGRAM`` does."""
    for fd, name, mode in (
        (0, os.devnull, os.O_RDONLY),
        (1, asked["out"], os.O_WRONLY),
        (2, asked["err"], os.O_WRONLY),
    ):
        opened = os.open(name, mode)
        os.dup2(opened, fd)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(STACKS, all_threads=True)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    program = asked["argv"][0]
    sys.argv = asked["argv"]
    sys.path[0] = str(pathlib.Path(program).parent)
    sys.path[1:1] = filter(None, asked["env"].get("PYTHONPATH", "").split(os.pathsep))
    try:
        runpy.run_path(program, run_name="__main__")
    except Exception as error:
        report(error, program)
        sys.exit(1)
    except KeyboardInterrupt as error:
        report(error, program)
        sys.exit(130)


def report(error: BaseException, program: str) -> None:
    """What the interpreter does of an exception that nobody caught."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != program:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


if __name__ == "__main__":
    import rich.table  # noqa: F401
    import torch._dynamo  # noqa: F401
    import torch.distributed.checkpoint  # noqa: F401

    gc.freeze()  # programs need not go through all this when they end
    program = serve()
    if program is not None:
        play(program)
