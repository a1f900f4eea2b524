# SPDX-License-Identifier: Apache-2.0
"""Random programs in processes of their own: every difference, crash and hang with its seed.

python tests/fuzz/fuzz.py --count 100000 --first 0 --jobs 2
"""

import argparse
import collections
import os
import pathlib
import sys
import time

HELPERS = pathlib.Path(__file__).parents[1] / "python" / "helpers"
sys.path[:0] = [str(HELPERS), str(HELPERS / "program")]
import pool  # noqa: E402

MOST = 250  # programs a process runs
PATIENCE = 120  # seconds without a finished program: it hangs


def judge_seed(seed, sign):
    """The child's part: judges one program, and shows a smaller one where it is different."""
    from program_oracle import judge
    from program_shrink import shrink
    from random_programs import draft

    sign(seed)
    program = draft(int(seed))
    verdict, said = judge(program)
    if verdict == "different":
        small, found = shrink(program)
        print(f"seed {seed}: {said}\nmade smaller: {found}\n{small.text()}", file=sys.stderr)
    return {"verdict": verdict}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=int(time.time()) * 1000, help="seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    print(f"{options.count} programs, seeds {seeds[0]} to {seeds[-1]}", flush=True)
    counts, start = collections.Counter(), time.monotonic()
    for row in pool.run_all(__file__, [str(s) for s in seeds], options.jobs, MOST, PATIENCE):
        counts[row.get("verdict", "died")] += 1
        if "died" in row:
            print(f"seed {row['item']}: the process {row['died']}", flush=True)
        if sum(counts.values()) % (20 * MOST) == 0:
            print(f"{dict(counts)} in {time.monotonic() - start:.0f} s", flush=True)
    print(f"{dict(counts)} in {time.monotonic() - start:.0f} s")
    return int(counts["different"] + counts["died"] > 0)


if __name__ == "__main__":
    if "--child" in sys.argv:
        import spmdx

        spmdx._C.set_checks(poison=True)
        pool.serve(judge_seed)
    else:
        sys.exit(main())
