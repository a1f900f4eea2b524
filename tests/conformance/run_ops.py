# SPDX-License-Identifier: Apache-2.0
"""Every entry of op_db on every mesh: python tests/conformance/run_ops.py --settings 4-even --ops 'nn.*'."""

import argparse
import collections
import json
import pathlib
import re
import sys
import warnings

import farm

FULL = "4-even"  # the setting that DTensor was measured in
SETTINGS = {
    "4-even": ((4,), "EVEN", None, 64),
    "quick": ((4,), "EVEN", 8, 6),
    "2-even": ((2,), "EVEN", 24, 12),
    "3-even": ((3,), "EVEN", 24, 12),
    "2x2-even": ((2, 2), "EVEN", 24, 12),
    "2-uneven": ((2,), "UNEVEN", 24, 12),
    "3-uneven": ((3,), "UNEVEN", 24, 12),
    "4-uneven": ((4,), "UNEVEN", 24, 12),
    "2x3-uneven": ((2, 3), "UNEVEN", 24, 12),
}


def handle(item: str, sign) -> dict:
    """The child's part: one entry in one setting."""
    import op_judge
    import op_samples

    key, name = item.split(" ", 1)
    mesh, sizes, most_samples, most_placements = SETTINGS[key]
    setting = op_judge.Setting(mesh, getattr(op_samples, sizes), most_samples, most_placements)
    op = next(op for op in op_samples.entries() if op_samples.name_of(op) == name)
    verdict = op_judge.judge(op, setting, lambda *at: sign(repr(at)))
    return vars(verdict) | {"troubles": len(verdict.trouble), "trouble": verdict.trouble[:20]}


def prepare() -> None:
    """Eight devices; moving is free, so that every op is cut where a rule allows it; poisoned."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
    import spmdx
    from composites import least_work

    warnings.filterwarnings("ignore")
    least_work().__enter__()
    spmdx._C.set_checks(poison=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", default=",".join(SETTINGS), help="comma-separated")
    parser.add_argument("--ops", default="", help="a pattern of names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", help="a file for one line of JSON an entry")
    options = parser.parse_args()
    import op_samples

    names = [op_samples.name_of(op) for op in op_samples.entries()]
    chosen = [name for name in names if re.search(options.ops, name)]
    items = [f"{key} {name}" for key in options.settings.split(",") for name in chosen]
    rows = []
    out = open(options.out, "w") if options.out else None
    for row in farm.work_off(__file__, items, options.jobs):
        rows.append(row)
        if out:
            print(json.dumps(row), file=out, flush=True)
    return report(rows)


def report(rows: list[dict]) -> int:
    """Prints a line a setting, and all troubles; returns how many there are."""
    settings = collections.defaultdict(list)
    for row in rows:
        settings[row["item"].split(" ")[0]].append(row)
    for key, found in settings.items():
        ran = [r for r in found if r.get("runs")]
        runs, fell = sum(r["runs"] for r in ran), sum(r["fell_back"] for r in ran)
        print(
            f"{key:12} {len(found)} entries, {len(ran)} ran, "
            f"{sum(1 for r in found if r.get('troubles'))} with trouble, "
            f"{sum(1 for r in found if 'died' in r)} died, "
            f"{sum(1 for r in ran if r['fell_back'] < r['runs'])} without fallback somewhere; "
            f"{runs} placements, {fell} fell back"
        )
    bad = [r for r in rows if r.get("troubles") or "died" in r]
    for row in bad:
        print(row["item"], row.get("troubles", ""), row.get("died") or row["trouble"][0][:300])
    return len(bad)


if __name__ == "__main__":
    if "--child" in sys.argv:
        prepare()
        farm.serve(handle)
    else:
        sys.exit(min(main(), 1))
