# SPDX-License-Identifier: Apache-2.0
"""Cases of fault injection, and what is asked: nobody waits long, a message names the process, and
the program goes on from its checkpoint as if nothing had happened."""

import dataclasses
import functools
import json
import pathlib
import random
import re
import shutil
import signal
import tempfile
import time

from launch import Running

POINTS = (
    "import",
    "rendezvous",
    "mesh",
    "tracing",
    "compiling",
    "first collective",
    "collective",
    "between steps",
    "saving",
    "loading",
    "shutdown",
    "during a save",
    "during a save in the background",
)
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
STEPS, HALF = 5, 2


@dataclasses.dataclass(frozen=True)
class Patience:
    """Seconds: SPMDX_TIMEOUT, and how long the others may take to end."""

    timeout: int = 10
    limit: int = 30


@dataclasses.dataclass(frozen=True)
class Case:
    point: str
    kind: str
    processes: int
    seed: int
    collectives: str = "direct"

    def __str__(self):
        ways = "" if self.collectives == "direct" else f" with {self.collectives} collectives"
        return f"{self.kind} at {self.point}, {self.processes} processes{ways}, seed {self.seed}"


@dataclasses.dataclass
class Calm:
    """A program that nothing happened to: losses by step, digest, events by point and process."""

    losses: dict[int, str]
    digest: str
    events: dict[str, list[int]]
    saved: pathlib.Path  # its checkpoint after HALF of the steps
    folder: tempfile.TemporaryDirectory  # which holds that, as long as it is needed

    def differs_from(self, out: str) -> bool:
        """Whether a program printed a loss that is not bit-equal."""
        return any(self.losses[step] != loss for step, loss in losses(out).items())


@dataclasses.dataclass
class Verdict:
    """``trouble`` is empty if all is well; ``seconds`` from the strike to the last end."""

    case: Case
    trouble: str = ""
    struck: bool = False
    seconds: float = 0.0


def losses(out: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"^step (\d+) (\S+)$", out, re.MULTILINE)}


def numbers(word: str, out: str) -> list[int]:
    return [int(number) for number in re.findall(rf"^{word} (\d+)$", out, re.MULTILINE)]


def play(folder: pathlib.Path, processes: int, ways: str, *arguments: object) -> list:
    with Running(
        "fault_injection.py",
        processes,
        1,
        str(folder),
        *map(str, arguments),
        SPMDX_COLLECTIVES=ways,
    ) as running:
        return running.end(120)


@functools.cache
def calm(processes: int, ways: str) -> Calm:
    """Of a number of processes and a way: sums of other shards, or in other orders, differ."""
    holder = tempfile.TemporaryDirectory()
    folder = pathlib.Path(holder.name)
    said = [how.out for how in play(folder, processes, ways, HALF)]
    shutil.copytree(folder / "c", folder / "half")
    rest = play(folder, processes, ways, STEPS)
    assert all(how.status == 0 for how in rest), [how.err for how in rest]
    said = [one + how.out for one, how in zip(said, rest, strict=True)]
    assert all((min(numbers("natives", out)) > 0) == (ways == "native") for out in said)
    events = {
        point: [min(numbers(f"events {point}", out)) for out in said]
        for point in ("import", "saving", "loading")
    }
    (end,) = {re.findall(r"^end (\S+)$", out, re.MULTILINE)[-1] for out in said}
    return Calm(losses(said[0]), end, events, folder / "half", holder)


def judge(case: Case, patience: Patience) -> Verdict:
    """Plays a case, and goes on after it."""
    quiet, verdict = calm(case.processes, case.collectives), Verdict(case)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if case.point == "loading":
            shutil.copytree(quiet.saved, folder / "c")
        saved = _disturbed(case, patience, quiet, folder, verdict)
        if not verdict.trouble:
            _resumed(case, quiet, folder, verdict, saved)
    return verdict


def _disturbed(
    case: Case, patience: Patience, quiet: Calm, folder: pathlib.Path, verdict: Verdict
) -> int:
    """The case itself; returns how many steps are known to be saved."""
    victim = random.Random(str(case)).randrange(case.processes)
    told = {
        "point": case.point,
        "victim": victim,
        "signal": SIGNALS[case.kind],
        "seed": case.seed,
        "events": quiet.events,
    }
    arguments = (str(folder), str(STEPS), json.dumps(told))
    with Running(
        "fault_injection.py",
        case.processes,
        1,
        *arguments,
        SPMDX_TIMEOUT=patience.timeout,
        SPMDX_COLLECTIVES=case.collectives,
    ) as running:
        others = [rank for rank in range(case.processes) if rank != victim]
        until, struck = time.monotonic() + 4 * patience.limit, folder / "struck"
        while any(running.children[rank].poll() is None for rank in others):
            time.sleep(0.02)
            since = float(struck.read_text() or "inf") if struck.exists() else None
            if time.monotonic() > (until if since is None else since + patience.limit):
                break
        verdict.struck = struck.exists()
        if verdict.struck:
            verdict.seconds = time.monotonic() - float(struck.read_text())
        ended = running.end(0 if verdict.struck else patience.limit)
    for rank in others:
        verdict.trouble = verdict.trouble or _unwell(ended[rank], rank, victim, quiet)
    return max(max([0, *numbers("saved", how.out), *numbers("resumed", how.out)]) for how in ended)


def _unwell(how, rank: int, victim: int, quiet: Calm) -> str:
    """What is wrong with how one of the others ended."""
    said = how.out + how.err
    if how.status is None:
        return f"process {rank} hangs:\n{said[-2000:]}"
    if quiet.differs_from(how.out):
        return f"process {rank} has other losses:\n{said[-2000:]}"
    if how.status == 0:
        return "" if f"end {quiet.digest}" in how.out else f"process {rank} ends early:\n{said}"
    if re.search(rf"process {victim}\b|processes are missing: (\d+, )*{victim}\b", how.err):
        return ""
    return f"process {rank} does not name process {victim}:\n{said[-2000:]}"


def _resumed(case: Case, quiet: Calm, folder: pathlib.Path, verdict: Verdict, saved: int) -> None:
    ended = play(folder, case.processes, case.collectives, STEPS)
    troubles = (_unresumed(how, quiet, saved) for how in ended)
    verdict.trouble = "\n".join(
        f"process {rank} {trouble}" for rank, trouble in enumerate(troubles) if trouble
    )


def _unresumed(how, quiet: Calm, saved: int) -> str:
    """What is wrong with how one process of the program that went on ended."""
    from_step = max([0, *numbers("resumed", how.out)])
    if how.status != 0:
        said = f"{how.out[-500:]}\n{how.err[-3000:]}"
        return f"cannot go on, status {how.status}:\n{said}"
    if from_step < saved:
        return f"goes on from {from_step}, but {saved} was saved"
    if f"end {quiet.digest}" not in how.out:
        return "ends with other parameters"
    return "goes on with other losses" if quiet.differs_from(how.out) else ""
