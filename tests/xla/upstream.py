# SPDX-License-Identifier: Apache-2.0
"""PyTorch/XLA's own SPMD tests, unmodified, on 8 devices: ``python upstream.py CHECKOUT``.

CHECKOUT is a folder with ``test/spmd`` of pytorch/xla at 86e3974. Each file runs in a process of
its own. It needs absl-py. It ends with an error if a test that is asked for fails.
"""

import argparse
import ast
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from not_asked import ARGUMENTS, DEVICES, NO_TESTS, NOT_ASKED

CHILD = pathlib.Path(__file__).with_name("upstream_child.py")
PACKAGE = pathlib.Path(__file__).parents[2] / "python"
SECONDS = 240  # of a file


def tests_of(file):
    """The tests that a file defines, by the names of class and method."""
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found += [
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef) and part.name.startswith("test")
            ]
    return found


def run(file, devices, names, verbose):
    """By test: what became of it, and why. Only ``names``, if there are any."""
    path = os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])
    setting = {"CPU_NUM_DEVICES": str(devices), "PJRT_DEVICE": "CPU", "PYTHONPATH": path}
    environment = {**os.environ, **setting}
    environment.pop("SPMDX_NUM_DEVICES", None)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "results"
        environment["CHKPT_PATH"] = str(pathlib.Path(folder) / "checkpoint")
        command = [sys.executable, str(CHILD), str(file), str(out), ",".join(names)]
        command += ARGUMENTS.get(file.name, [])
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=SECONDS
            )
            ended = f"the process ended with {done.returncode}\n{done.stderr[-3000:]}"
        except subprocess.TimeoutExpired:
            ended = f"the process did not end within {SECONDS} seconds"
        lines = out.read_text().splitlines() if out.exists() else []
    if verbose:
        print(ended)
    rows = [json.loads(line) for line in lines]
    found = collections.defaultdict(lambda: ("failed", ended))
    for row in rows:
        # Parametrized tests have a number at the end: one row of the table for all of them.
        for name in {row["test"], row["test"].rstrip("0123456789")}:
            if name not in found or found[name][0] == "passed":
                found[name] = row["what"], row["why"]
    return found


def outcomes(file, wanted, verbose):
    """For each test of a file: (name, what became of it, why)."""
    names = [n for n in tests_of(file) if not wanted or wanted in n]
    asked = [n for n in names if n not in NOT_ASKED]
    found = {}
    for devices in sorted({DEVICES.get(n, 8) for n in asked}):
        now = [n for n in asked if DEVICES.get(n, 8) == devices]
        rows = run(file, devices, now, verbose)
        found.update({name: rows[name] for name in now})
    for name in names:
        yield name, *found.get(name, ("not asked", NOT_ASKED.get(name, "")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--file", default="", help="only files whose name has this in it")
    parser.add_argument("--test", default="", help="only tests whose name has this in it")
    parser.add_argument("--why", action="store_true", help="print why tests failed")
    parser.add_argument("--verbose", action="store_true", help="print what the processes printed")
    options = parser.parse_args()
    total = collections.Counter()
    for file in sorted((options.checkout / "test" / "spmd").glob("*.py")):
        if file.name in NO_TESTS or options.file not in file.name:
            continue
        counts = collections.Counter()
        for name, what, why in outcomes(file, options.test, options.verbose):
            said = "" if what == "passed" else why.strip().splitlines()[-1][:110] if why else ""
            print(f"{file.name:45} {name:75} {what:10} {said}", flush=True)
            if what == "failed" and options.why:
                print(why)
            counts[what] += 1
        if counts:
            print(f"{file.name:45} {dict(counts)}\n", flush=True)
        total += counts
    print(f"all: {sum(total.values())} tests, {dict(total)}")
    sys.exit(bool(total["failed"]))


if __name__ == "__main__":
    main()
