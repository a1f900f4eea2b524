# SPDX-License-Identifier: Apache-2.0
"""Worlds of processes that play drafted programs, and what is wrong with what they say.

Nothing may be silent: a program ends as it does without faults, bit for bit, or within rounding
where it went on from a snapshot, in every process alike; and nobody waits for long.
"""

import dataclasses
import json
import pathlib
import re
import time

from fault_drafts import Program, draft
from launch import Running

ROUNDING = 1e-7  # in float64, after a reload, or beside plain PyTorch
OWN = {  # what a process may be told of its own trouble
    "index": {"IndexError"},
    "late index": {"IndexError"},
    "loader": {"Raised"},
    "input": {"ShardingError"},  # of the loader
    "raises": {"Raised"},
    "kernel": {"Raised"},
    "refused": {"RuntimeError"},
    "interrupted": {"KeyboardInterrupt"},
    "shards": {"ShardingError"},
}
PARTING = {"read", "mark", "no mark"}  # processes may then wait for each other at different places
NEVER = re.compile(r"bug in spmdx|planned the same program differently|step \d{15}|has waited for")


@dataclasses.dataclass(frozen=True)
class Patience:
    """Seconds: SPMDX_TIMEOUT, and how long nothing may be heard of a world."""

    timeout: int = 20
    limit: int = 60


@dataclasses.dataclass
class Verdict:
    """Of a program, or of the load of what it saved; ``trouble`` is empty if all is well."""

    task: str
    trouble: str = ""
    story: str = ""  # what the processes said
    told: bool = False  # whether a fault was noticed
    recovers: int = 0
    reloads: int = 0
    saved: str = ""
    seconds: float = 0.0


class Heard:
    """What the processes of a world have said of each task."""

    def __init__(self, running: Running, processes: int):
        self._running, self._seen = running, [0] * processes
        self.said: list[list[dict]] = [[] for _ in range(processes)]

    def listen(self) -> bool:
        """Whether there was anything new."""
        new = False
        for rank, said in enumerate(self.said):
            lines = self._running.said(rank).splitlines(keepends=True)
            for line in lines[self._seen[rank] :]:
                if not line.endswith("\n"):
                    break
                self._seen[rank] += 1
                if line.startswith('{"seed"'):
                    said.append(json.loads(line))
                    new = True
        return new

    def of(self, task: str) -> list[list[dict]]:
        """By process, from the beginning of a task to its row."""
        found = []
        for said in self.said:
            begins = [n for n, one in enumerate(said) if one.get("details") == [task]]
            some = said[begins[-1] :] if begins else []
            ends = [n for n, one in enumerate(some, 1) if one.get("task") == task]
            found.append(some[: ends[0]] if ends else some)
        return found

    def rows(self, task: str) -> list[dict | None]:
        return [
            next((one["row"] for one in said if one.get("task") == task), None)
            for said in self.of(task)
        ]


def play(
    tasks: list[str],
    processes: int,
    devices: int,
    folder: pathlib.Path,
    patience: Patience,
    tells: bool = False,
    planted: str = "",
) -> list[Verdict]:
    """Verdicts on tasks until one has trouble, after which its world is not used any more.

    Args:
        tasks: seeds, or "load SEED".
        processes: of the world.
        devices: of each process.
        folder: where what is saved lies.
        patience: with the world.
        tells: whether the story of a program that went well is wanted, too.
        planted: a defect of ``fault_plants``.
    """
    verdicts = []
    arguments = (str(folder), *tasks)
    with Running(
        "faults/faults.py",
        processes,
        devices,
        *arguments,
        SPMDX_TIMEOUT=patience.timeout,
        PLANTED=planted,
    ) as running:
        heard = Heard(running, processes)
        for task in tasks:
            ending = awaited(task, heard, running, patience)
            verdict = judge(task, heard, ending)
            verdicts.append(verdict)
            if verdict.trouble or tells:
                errors = [how.err[-1500:] for how in running.end(0)]
                verdict.story = story(heard.of(task)) + "\n" + "\n".join(filter(None, errors))
                break
    return verdicts


def awaited(task: str, heard: Heard, running: Running, patience: Patience) -> str:
    """Waits for a row of every process. Returns why there is none, or what is wrong already."""
    since = time.monotonic()
    program = draft(int(task.split()[-1]))
    while True:
        ended = [rank for rank, child in enumerate(running.children) if child.poll() is not None]
        if heard.listen():
            since = time.monotonic()
            if words := wrong_words(program, heard.of(task)):
                return words
        if all(heard.rows(task)):
            return ""
        if ended:
            return f"process {ended[0]} ended with {running.children[ended[0]].poll()}"
        if time.monotonic() - since > patience.limit:
            return f"hang: nothing was heard for {patience.limit} s"
        time.sleep(0.02)


def judge(task: str, heard: Heard, ending: str) -> Verdict:
    said, rows = heard.of(task), heard.rows(task)
    program = draft(int(task.split()[-1]))
    verdict = Verdict(task)
    verdict.told = any("what" in one and one["what"] == "caught" for some in said for one in some)
    verdict.trouble = ending
    if ending:
        return verdict
    first = rows[0]
    verdict.seconds = max(row["seconds"] for row in rows)
    if "loaded" in first:
        verdict.saved = first["loaded"]
        if any(row["loaded"] != first["loaded"] for row in rows):
            verdict.trouble = "silent: processes have loaded other bits"
        return verdict
    verdict.recovers, verdict.reloads = first["recovers"], first["reloads"]
    verdict.saved = first.get("saved", "")
    verdict.trouble = wrong_numbers(program, rows)
    return verdict


def wrong_numbers(program: Program, rows: list[dict]) -> str:
    for kind in ("calm", "end", "saved"):
        if len({row.get(kind) for row in rows}) > 1:
            return f"silent: processes differ in `{kind}`"
    first = rows[0]
    interrupted = any(fault.kind == "interrupted" for fault in program.faults)  # perhaps in recover
    if len({(row["recovers"], row["reloads"]) for row in rows}) > 1 and not interrupted:
        return "processes have recovered differently"
    reloads = any(row["reloads"] for row in rows)
    if len({row["read"][0] for row in rows}) > 1:
        return "silent: processes read other values"
    if any(len(row["lost"]) > row["recovers"] for row in rows):
        return "silent: what was read is lost"
    error, name = max((row["off"] for row in rows), key=lambda off: off[0])
    if (error or first["end"] != first["calm"]) and not (reloads and error < ROUNDING):
        return f"silent: {name} is off by {error:.3g} at the end"
    if first.get("plain", [0])[0] > ROUNDING:
        return f"silent: {first['plain'][1]} is off by {first['plain'][0]:.3g} of plain PyTorch"
    return ""


def wrong_words(program: Program, said: list[list[dict]]) -> str:
    """What nobody should be told, or not he alone."""
    kinds = {fault.kind for fault in program.faults}
    allowed = {"CommError"}.union(*(OWN.get(kind, set()) for kind in kinds))
    if program.keeps == "checkpoint":
        allowed.add("CheckpointError")
    for rank, some in enumerate(said):
        for one in some:
            if one.get("what") not in ("caught", "recover says", "broken"):
                continue
            text = " ".join(map(str, one["details"]))
            if one["what"] == "broken":
                return f"process {rank} cannot go on: {text.strip().splitlines()[-1]}"
            if one["run"] == "calm":
                return f"process {rank} is told without any fault: {text}"
            if one["what"] == "caught" and one["details"][0] not in allowed:
                return f"process {rank} is told what is not its trouble: {text}"
            if "has waited for" in text and kinds & PARTING:
                continue
            if bad := NEVER.search(text):
                return f"process {rank} is told `{bad[0]}`: {text}"
    return "" if "interrupted" in kinds else parted(said)


def parted(said: list[list[dict]]) -> str:
    """Whether processes stand at different places when they have recovered."""
    stands = [
        [
            "overwritten" if one["what"] == "recover says" else one["details"][0]
            for one in some
            if one.get("what") in ("recovered", "recover says")
        ]
        for some in said
    ]
    for turn in range(max(map(len, stands))):
        places = [some[turn] for some in stands if len(some) > turn]
        if len(set(places)) > 1:
            return f"silent: processes stand at {places} after they have recovered"
    return ""


def story(said: list[list[dict]]) -> str:
    lines = []
    for rank, some in enumerate(said):
        lines += [f"  process {rank}: {json.dumps(one)[:600]}" for one in some]
    return "\n".join(lines)
