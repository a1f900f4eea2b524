# SPDX-License-Identifier: Apache-2.0
"""Cases of processes that are killed under torchrun --max-restarts, and what is asked of them."""

import dataclasses
import functools
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

from launch import PLAYERS, free_port

STEPS, RESTARTS = 6, 3


@dataclasses.dataclass(frozen=True)
class Case:
    processes: int
    seed: int
    rendezvous: str = "static"

    def __str__(self):
        return f"{self.processes} processes, {self.rendezvous}, seed {self.seed}"

    def strikes(self) -> list[str]:
        """Who is killed in each attempt, and when: one to three times."""
        draw = random.Random(str(self))
        lines = []
        for _ in range(draw.randint(1, RESTARTS)):
            soon = draw.random() < 0.3  # while it starts, meets or plans; else while it trains
            within = f"{draw.uniform(0, 0.08):.3f}"  # of a step, the first or second of the attempt
            delay = f"{draw.uniform(0, 8):.3f}" if soon else f"+{draw.randrange(2)}:{within}"
            lines.append(f"{draw.randrange(self.processes)} {delay}")
        return lines


def launch(
    program: pathlib.Path,
    processes: int,
    rendezvous: str,
    *arguments: str,
    restarts: int = RESTARTS,
    limit: float = 400,
) -> subprocess.CompletedProcess:
    """Runs a program under torchrun, and leaves none of its processes behind."""
    port = free_port()
    where = {
        "static": ["--master-addr", "127.0.0.1", "--master-port", str(port)],
        "c10d": ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"],
    }[rendezvous]
    command = [sys.executable, "-m", "torch.distributed.run", *where, "--monitor-interval", "0.1"]
    numbers = ["--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    paths = [str(PLAYERS.parents[2] / "python"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
        "SPMDX_NUM_DEVICES": "1",
        "SPMDX_TIMEOUT": "60",
    }
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            [*command, *numbers, str(program), *arguments],
            stdout=said,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        said.seek(0)
        return subprocess.CompletedProcess(command, status, said.read())


def found(word: str, said: str) -> set[str]:
    return set(re.findall(rf"^{word} (.*)$", said, re.MULTILINE))


@functools.cache
def undisturbed(processes: int) -> tuple[frozenset[str], frozenset[str]]:
    """The losses by step, and the digest of the parameters."""
    with tempfile.TemporaryDirectory() as folder:
        done = launch(PLAYERS / "restarts.py", processes, "static", folder, str(STEPS))
    assert done.returncode == 0, done.stdout
    return frozenset(found("step", done.stdout)), frozenset(found("end", done.stdout))


def judge(case: Case) -> tuple[str, int]:
    """What is wrong, or nothing; and how often a process was killed."""
    steps, end = undisturbed(case.processes)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "strikes").write_text("\n".join(case.strikes()))
        done = launch(PLAYERS / "restarts.py", case.processes, case.rendezvous, name, str(STEPS))
        struck = folder / "struck"
        count = len(struck.read_text().splitlines()) if struck.exists() else 0
    if done.returncode != 0:
        return f"it ended with {done.returncode}:\n{done.stdout[-4000:]}", count
    if found("end", done.stdout) != end:
        return f"it ended with other parameters:\n{done.stdout[-4000:]}", count
    if other := found("step", done.stdout) - steps:
        return f"it had other losses, {sorted(other)}:\n{done.stdout[-4000:]}", count
    return "", count
