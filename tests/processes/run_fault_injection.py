# SPDX-License-Identifier: Apache-2.0
"""Kills and stops a process at every point of a program, and goes on from its checkpoint.

python tests/processes/run_fault_injection.py --seeds 20 --processes 2,4 --jobs 2

At random times of saves, in the foreground and in the background:
python tests/processes/run_fault_injection.py --saves --kinds kill --seeds 15 --processes 2,3
"""

import argparse
import collections
import concurrent.futures
import itertools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "helpers"))
from fault_injection_cases import POINTS, SIGNALS, Case, Patience, Verdict, calm, judge  # noqa: E402


def show(verdicts: list[Verdict]) -> None:
    """A row a point: cases, those in which the point was reached, trouble, longest wait."""
    rows = collections.defaultdict(list)
    for verdict in verdicts:
        rows[verdict.case.kind, verdict.case.point].append(verdict)
    print(f"\n{'':40}{'cases':>8}{'struck':>8}{'trouble':>9}{'longest':>10}")
    for (kind, point), some in rows.items():
        struck = [v for v in some if v.struck]
        longest = max([0.0, *(v.seconds for v in struck)])
        wrong = sum(bool(v.trouble) for v in some)
        print(f"{kind + ' ' + point:40}{len(some):8}{len(struck):8}{wrong:9}{longest:8.1f} s")
    wrong = sum(bool(v.trouble) for v in verdicts)
    print(f"{len(verdicts)} cases, {wrong} with trouble; nobody may wait for {Patience.limit} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="cases of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--processes", default="2,4", help="how many, in turn")
    parser.add_argument("--points", default=",".join(POINTS))
    parser.add_argument("--saves", action="store_true", help="only at random times of saves")
    parser.add_argument("--kinds", default=",".join(SIGNALS))
    parser.add_argument("--collectives", default="direct,native", help="which way, in turn")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    options = parser.parse_args()
    if options.saves:
        options.points = ",".join(point for point in POINTS if point.startswith("during a save"))
    counts = [int(count) for count in options.processes.split(",")]
    ways = options.collectives.split(",")
    for count, way in itertools.product(counts, ways):
        calm(count, way)
    cases = [
        Case(point, kind, count, options.first + seed, way)
        for seed in range(options.seeds)
        for point in options.points.split(",")
        for kind in options.kinds.split(",")
        for count in counts
        for way in ways
    ]
    verdicts = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(lambda case: judge(case, Patience()), cases):
            verdicts.append(verdict)
            if verdict.trouble:
                print(f"{verdict.case}: {verdict.trouble}\n", flush=True)
            if len(verdicts) % 40 == 0:
                print(f"{len(verdicts)} of {len(cases)} cases", flush=True)
    show(verdicts)
    return int(any(v.trouble for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
