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


def work_off(
    script: str, items: list[str], jobs: int, chunk: int, patience: float
) -> Iterator[dict]:
    """Yields what ``script --child`` printed about each item, or how it died.

    Args:
        script: a file that ends in :func:`serve`.
        items: names, each handled once; whoever is free takes the next.
        jobs: how many processes at a time.
        chunk: how many items a process gets.
        patience: seconds without a sign of life after which a process hangs.

    Returns:
        A dict an item, as they come: what the child said, or ``{"item", "died"}``.
    """
    chunks = [items[at : at + chunk] for at in range(0, len(items), chunk)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        work = [pool.submit(run_chunk, script, some, patience) for some in chunks]
        for done in concurrent.futures.as_completed(work):
            yield from done.result()


def run_chunk(script: str, items: list[str], patience: float) -> list[dict]:
    """The lines of as many children as it takes."""
    left, rows = list(items), []
    while left:
        died, lines, where = run_child(script, left, patience)
        rows += lines
        for line in lines:
            left.remove(line["item"])
        if died and left:
            rows.append({"item": left.pop(0), "died": f"{died} {where}"})
    return rows


def run_child(script: str, items: list[str], patience: float) -> tuple[str, list[dict], str]:
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
            died = watch(child, sign, patience)
            out.seek(0)
            lines = [json.loads(line) for line in out if line.startswith("{")]
        return died, lines, sign.read_text()


def watch(child: subprocess.Popen, sign: pathlib.Path, patience: float) -> str:
    """Waits for the end; says how it ended where that was not well."""
    seen, since = None, time.monotonic()
    while child.poll() is None:
        time.sleep(0.1)
        now = sign.stat().st_mtime_ns
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > patience:
            child.kill()
            child.wait()
            return f"hung for {patience} s"
    return f"crashed with status {child.returncode}" if child.returncode else ""


def serve(handle: Callable[[str, Callable[[str], None]], dict]) -> None:
    """The child's loop: handles every item named after ``--child SIGN``.

    Args:
        handle: makes a dict of an item; its second argument is called with where it is.
    """
    sign = pathlib.Path(sys.argv[2])
    for item in sys.argv[3:]:
        print(json.dumps({"item": item, **handle(item, sign.write_text)}), flush=True)
