# SPDX-License-Identifier: Apache-2.0
"""Work in processes of their own: what crashes or hangs costs one item, and is reported by name."""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

PATIENCE = 300  # seconds without a sign of life: it hangs


def work_off(script: str, items: list[str], jobs: int) -> Iterator[dict]:
    """Yields what ``script --child`` printed about each item, or how it died.

    Args:
        script: a file that ends in :func:`serve`.
        items: names, each handled once; whoever is free takes the next.
        jobs: how many processes at a time.

    Returns:
        A dict an item, as they come: what the child said, or ``{"item", "died"}``.
    """
    chunks = [items[at : at + 8] for at in range(0, len(items), 8)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in concurrent.futures.as_completed(
            [pool.submit(lambda c: list(run_chunk(script, c)), chunk) for chunk in chunks]
        ):
            yield from done.result()


def run_chunk(script: str, items: list[str]) -> Iterator[dict]:
    """The lines of as many children as it takes."""
    left = list(items)
    while left:
        died, lines, where = run_child(script, left)
        for line in lines:
            left.remove(line["item"])
            yield line
        if died and left:
            yield {"item": left[0], "died": f"{died} {where}"}
            left = left[1:]


def run_child(script: str, items: list[str]) -> tuple[str, list[dict], str]:
    """(how it died, its lines, where it was)."""
    with tempfile.TemporaryDirectory() as folder:
        sign = pathlib.Path(folder) / "sign"
        sign.write_text("")
        with open(pathlib.Path(folder) / "out", "w+") as out:
            child = subprocess.Popen(
                [sys.executable, script, "--child", str(sign), *items],
                stdout=out,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            died = watch(child, sign)
            out.seek(0)
            lines = [json.loads(line) for line in out if line.startswith("{")]
        return died, lines, sign.read_text()


def watch(child: subprocess.Popen, sign: pathlib.Path) -> str:
    """Waits for the end; says how it ended where that was not well."""
    seen, since = None, time.monotonic()
    while child.poll() is None:
        time.sleep(0.1)
        now = sign.stat().st_mtime_ns
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            child.kill()
            child.wait()
            return f"hung for {PATIENCE} s"
    return f"crashed with status {child.returncode}" if child.returncode else ""


def serve(handle: Callable[[str, Callable[[str], None]], dict]) -> None:
    """The child's loop: handles every item named after ``--child SIGN``.

    Args:
        handle: makes a dict of an item; its second argument is called with where it is.
    """
    sign = pathlib.Path(sys.argv[2])
    for item in sys.argv[3:]:
        print(json.dumps({"item": item, **handle(item, sign.write_text)}), flush=True)
