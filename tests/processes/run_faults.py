# SPDX-License-Identifier: Apache-2.0
"""Plays random programs in which something goes wrong, in processes that recover and go on.

python tests/processes/run_faults.py --count 1000 --first 0 --jobs 2
python tests/processes/run_faults.py --show 17      # the program of one seed, and how it goes
"""

import argparse
import collections
import pathlib
import queue
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "helpers"), str(HERE / "players" / "faults")]
from fault_drafts import WORLDS, draft  # noqa: E402
from fault_worlds import Patience, Verdict, play  # noqa: E402

CHUNK = 40  # programs that a world plays


class Hunt:
    """All verdicts on some seeds. What a world has saved, a later one of another kind loads."""

    def __init__(
        self,
        seeds: list[int],
        jobs: int,
        patience: Patience,
        say=lambda verdict: None,
        planted: str = "",
    ):
        self.verdicts: list[Verdict] = []
        self._patience, self._say, self._planted = patience, say, planted
        self._lock = threading.Lock()
        self._saved: dict[int, str] = {}  # not loaded yet
        self._expected: dict[int, str] = {}  # of loads
        self._chunks: queue.Queue[tuple[tuple[int, int], list[str]]] = queue.Queue()
        for kind in sorted(set(WORLDS)):
            mine = [str(s) for s in seeds if WORLDS[s % len(WORLDS)] == kind]
            for at in range(0, len(mine), CHUNK):
                self._chunks.put((kind, mine[at : at + CHUNK]))
        with tempfile.TemporaryDirectory() as name:
            self._folder = pathlib.Path(name)
            self._all(jobs)

    def _all(self, jobs: int) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for kind in ((3, 1), (2, 2)):  # what was saved last
            self._work_off(kind, self._loads(kind))

    def _work(self) -> None:
        while True:
            try:
                kind, tasks = self._chunks.get_nowait()
            except queue.Empty:
                return
            self._work_off(kind, self._loads(kind) + tasks)

    def _loads(self, kind: tuple[int, int]) -> list[str]:
        with self._lock:
            here = [s for s in self._saved if WORLDS[s % len(WORLDS)] != kind]
            self._expected |= {seed: self._saved.pop(seed) for seed in here}
        return [f"load {seed}" for seed in here]

    def _work_off(self, kind: tuple[int, int], tasks: list[str]) -> None:
        while tasks:
            done = play(tasks, *kind, self._folder, self._patience, planted=self._planted)
            tasks = tasks[len(done) :]
            for verdict in done:
                self._note(verdict)

    def _note(self, verdict: Verdict) -> None:
        seed = int(verdict.task.split()[-1])
        with self._lock:
            if verdict.saved and verdict.task.startswith("load"):
                if verdict.saved != self._expected[seed] and not verdict.trouble:
                    verdict.trouble = "silent: other bits were loaded than were saved"
            elif verdict.saved:
                self._saved[seed] = verdict.saved
            self.verdicts.append(verdict)
            self._say(verdict)


def show_counts(verdicts: list[Verdict], seconds: float) -> None:
    played = [v for v in verdicts if not v.task.startswith("load")]
    kinds = collections.Counter(v.trouble.split(":")[0] for v in verdicts if v.trouble)
    print(
        f"{len(played)} programs, {sum(v.told for v in played)} in which a fault was told, "
        f"{sum(v.recovers for v in played)} recovered, {sum(v.reloads for v in played)} reloaded, "
        f"{len(verdicts) - len(played)} loaded elsewhere, in {seconds:.0f} s; "
        f"{sum(kinds.values())} with trouble {dict(kinds) or ''}",
        flush=True,
    )


def show(seed: int, patience: Patience, planted: str) -> int:
    program = draft(seed)
    print(f"seed {seed}\n{program.text()}\n")
    with tempfile.TemporaryDirectory() as name:
        (verdict,) = play(
            [str(seed)],
            program.processes,
            program.devices,
            pathlib.Path(name),
            patience,
            True,
            planted,
        )
    print(verdict.story, verdict.trouble or "all is well", sep="\n\n")
    return int(bool(verdict.trouble))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="programs")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--jobs", type=int, default=2, help="worlds at a time")
    parser.add_argument("--timeout", type=int, default=20, help="SPMDX_TIMEOUT")
    parser.add_argument("--planted", default="", help="a defect of fault_plants")
    parser.add_argument("--show", type=int, help="the seed of one program")
    options = parser.parse_args()
    patience = Patience(options.timeout, 3 * options.timeout)
    if options.show is not None:
        return show(options.show, patience, options.planted)
    start, verdicts = time.monotonic(), []

    def say(verdict: Verdict) -> None:
        verdicts.append(verdict)
        if verdict.trouble:
            faults = ", ".join(map(str, draft(int(verdict.task.split()[-1])).faults))
            print(f"seed {verdict.task}: {verdict.trouble}\n  {faults}\n{verdict.story}\n")
        if len(verdicts) % 50 == 0:
            show_counts(verdicts, time.monotonic() - start)

    seeds = list(range(options.first, options.first + options.count))
    Hunt(seeds, options.jobs, patience, say, options.planted)
    show_counts(verdicts, time.monotonic() - start)
    return int(any(v.trouble for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
