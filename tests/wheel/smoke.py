# SPDX-License-Identifier: Apache-2.0
"""Tries an installed spmdx: the program of the README, and the examples of all public names.

    python tests/wheel/smoke.py README.md

It needs nothing but the package and what that asks for. It ends with 1 if something fails.
"""

import doctest
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys

FINDER = doctest.DocTestFinder(exclude_empty=True)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
FEWEST = 50  # examples


def program_of(readme):
    """The first block of Python in a page."""
    return re.search(r"^```python\n(.*?)^```$", readme.read_text(), re.M | re.S)[1]


def run_program(readme):
    done = subprocess.run(
        [sys.executable, "-c", program_of(readme)], capture_output=True, text=True
    )
    print(done.stdout[-400:], done.stderr, sep="")
    return done.returncode == 0 and "all_reduce" in done.stdout


def run_examples():
    """(how many examples ran, how many failed) of the public modules, on 8 virtual devices."""
    import spmdx

    spmdx.runtime.set_device_count(8)
    names = ["spmdx", *(m.name for m in pkgutil.iter_modules(spmdx.__path__, "spmdx."))]
    runner, seen = doctest.DocTestRunner(optionflags=FLAGS), set()
    for name in names:
        if "._" in name:
            continue
        module = importlib.import_module(name)
        found = {**vars(module), **{n: getattr(module, n) for n in getattr(module, "__all__", ())}}
        for public, value in found.items():
            if public.startswith("_") or not getattr(value, "__doc__", None) or id(value) in seen:
                continue
            if not getattr(value, "__module__", "").startswith("spmdx"):
                continue
            seen.add(id(value))
            for test in FINDER.find(value, public, globs={**vars(module)}):
                spmdx.sync(wait=True)
                runner.run(test)
    return runner.tries, runner.failures


def main():
    import spmdx

    print(f"spmdx {spmdx.__version__} in {spmdx.__path__[0]}")
    runs = run_program(pathlib.Path(sys.argv[1]))
    tries, failures = run_examples()
    print(f"the README's program {'runs' if runs else 'FAILS'}")
    print(f"{tries} lines of examples, {failures} failed")
    return int(not runs or failures > 0 or tries < FEWEST)


if __name__ == "__main__":
    sys.exit(main())
