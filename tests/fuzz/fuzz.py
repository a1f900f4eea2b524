# SPDX-License-Identifier: Apache-2.0
"""Random programs in processes of their own: every difference, crash and hang with its seed.

python tests/fuzz/fuzz.py --count 100000 --first 0 --jobs 2
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import time

CHUNK = 250  # programs a process runs
PATIENCE = 120  # seconds without a finished program: it hangs
TESTS = pathlib.Path(__file__).parents[1] / "python"


def run_seeds(first, stop, progress):
    """The child: judges every seed, and says in the file `progress` which one it is at."""
    sys.path.insert(0, str(TESTS))
    import spmdx
    from programs import draft, judge, shrink

    spmdx._C.set_checks(poison=True)
    for seed in range(first, stop):
        pathlib.Path(progress).write_text(str(seed))
        program = draft(seed)
        verdict, said = judge(program)
        print(verdict, flush=True)
        if verdict == "different":
            small, found = shrink(program)
            print(f"seed {seed}: {said}\nmade smaller: {found}\n{small.text()}", file=sys.stderr)


def run_child(first, stop, progress):
    """(finished, verdicts, complaints) of one child; it is killed where it makes no progress."""
    command = [sys.executable, __file__, "--child", str(first), str(stop), progress]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pathlib.Path(progress).write_text(str(first))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        at, since = None, time.monotonic()
        while child.poll() is None:
            time.sleep(0.2)
            seed = pathlib.Path(progress).read_text()
            if seed != at:
                at, since = seed, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                child.kill()
                child.wait()
        out.seek(0)
        err.seek(0)
        return child.returncode, out.read().split(), err.read()


def run_chunk(first, stop):
    """Counts of verdicts and what is to be told; goes on behind a seed that killed its process."""
    counts, told = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        progress = f"{folder}/seed"
        while first < stop:
            status, verdicts, complaints = run_child(first, stop, progress)
            counts.update(verdicts)
            if complaints:
                told.append(complaints)
            if status == 0:
                break
            at = int(pathlib.Path(progress).read_text())
            counts["died"] += 1
            told.append(f"seed {at}: the process ended with status {status}")
            first = at + 1
    return counts, told


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=int(time.time()) * 1000, help="seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_seeds(int(options.child[0]), int(options.child[1]), options.child[2])
        return 0
    first, stop = options.first, options.first + options.count
    print(f"{options.count} programs, seeds {first} to {stop - 1}", flush=True)
    counts, start = collections.Counter(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        chunks = [(a, min(a + CHUNK, stop)) for a in range(first, stop, CHUNK)]
        for found, told in pool.map(lambda chunk: run_chunk(*chunk), chunks):
            counts += found
            for text in told:
                print(text, flush=True)
            if sum(counts.values()) % (20 * CHUNK) == 0:
                print(f"{dict(counts)} in {time.monotonic() - start:.0f} s", flush=True)
    print(f"{dict(counts)} in {time.monotonic() - start:.0f} s")
    return int(counts["different"] + counts["died"] > 0)


if __name__ == "__main__":
    sys.exit(main())
