# SPDX-License-Identifier: Apache-2.0
"""Kills processes of a program at random moments, under a launcher that starts it again.

python tests/processes/run_restarts.py --count 60 --jobs 2
"""

import argparse
import concurrent.futures
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "helpers"))
from restart_cases import Case, judge, undisturbed  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60, help="programs")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--processes", default="2,3", help="how many, in turn")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    options = parser.parse_args()
    counts = [int(count) for count in options.processes.split(",")]
    for count in counts:
        undisturbed(count)
    cases = [
        Case(counts[i % len(counts)], options.first + i, ("static", "c10d")[i // len(counts) % 2])
        for i in range(options.count)
    ]
    wrong = struck = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, (trouble, count) in zip(cases, pool.map(judge, cases), strict=True):
            struck += count
            wrong += bool(trouble)
            print(f"{case}: {count} killed. {trouble}", flush=True)
    print(f"{len(cases)} programs, {struck} processes killed, {wrong} with trouble")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
