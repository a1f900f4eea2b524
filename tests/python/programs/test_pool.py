# SPDX-License-Identifier: Apache-2.0
"""Work in child processes: every item gets one row, whatever becomes of the process."""

import pathlib

import pool

SCRIPT = f"""
import os, sys, time
sys.path.insert(0, {str(pathlib.Path(pool.__file__).parent)!r})
import pool

def handle(item, sign):
    sign(f"at {{item}}")
    print("noise")
    if item == "dies":
        os._exit(4)
    if item == "hangs":
        time.sleep(600)
    return {{"pid": os.getpid()}}

pool.serve(handle)
"""


def test_every_item_has_a_row(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    items = [*map(str, range(12)), "dies", "hangs", *map(str, range(12, 24))]
    rows = list(pool.run_all(str(script), items, 2, 10, 5))
    assert sorted(row["item"] for row in rows) == sorted(items)
    died = {row["item"]: row["died"] for row in rows if "died" in row}
    assert died == {"dies": "crashed with status 4 at dies", "hangs": "hung for 5 s at hangs"}
    alive = [row["pid"] for row in rows if "pid" in row]
    assert max(map(alive.count, alive)) <= 10
