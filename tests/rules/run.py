# SPDX-License-Identifier: Apache-2.0
"""Every rule of the table against brute force: what it offers, what it misses, what is not tried.

    python tests/rules/run.py [--names 'sum|mm'] [--most 8] [--jobs 2] [--missed]

Prints a table, every way of cutting that gives a wrong result, ops without a rule and rows that no
call met. The status is 0 if nothing is wrong, crashes or hangs. With --missed it prints instead the
layouts that would work but that rules do not offer, dearest first.
"""

import argparse
import collections
import pathlib
import re
import sys
import warnings

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "python" / "helpers"), str(HERE.parent / "conformance")]
import pool  # noqa: E402

MOST = 60  # entries a process takes
PATIENCE = 300  # seconds without a finished call: it hangs


def prepare() -> None:
    """Moving is free, so that expansions cut all they can; memory that nobody owns holds NaN."""
    import spmdx
    from composites import least_work

    warnings.filterwarnings("ignore")
    least_work().__enter__()
    spmdx._C.set_checks(poison=True)


def handle(item: str, sign) -> dict:
    """The child's part: one entry."""
    from oracle import judge

    most, guess, name = item.split("/", 2)
    tally = judge(name, int(most) or None, guess=guess == "missed", at=sign)
    return {
        "calls": tally.calls,
        "tried": tally.tried,
        "wrongs": len(tally.wrong),
        "wrong": tally.wrong[:20],
        "ops": sorted(tally.ops),
        "missed": tally.missed,
        "without": sorted(tally.without),
    }


def show(rows: list[dict], whole: bool) -> bool:
    """Prints what came of it; whether all is well."""
    import spmdx
    from walk import rows_met

    died = [row for row in rows if "died" in row]
    ran = [row for row in rows if "died" not in row]
    met = rows_met({op for row in ran for op in row["ops"]})
    unmet = sorted(set(spmdx._C.rules()) - met)
    wrong = sum(row["wrongs"] for row in ran)
    print(f"rows tried       {len(met)} of {len(met) + len(unmet)}")
    print(f"calls            {sum(row['calls'] for row in ran):,}")
    print(f"ways of cutting  {sum(row['tried'] for row in ran):,}")
    print(f"wrong            {wrong:,}")
    print(f"crash or hang    {len(died)}")
    for row in ran:
        for said in row["wrong"]:
            print(f"WRONG {row['item']}: {said}")
    for row in died:
        print(f"DIED {row['item']}: {row['died']}")
    if whole and unmet:
        print("rows that no call met: " + ", ".join(unmet))
    print("without a rule: " + ", ".join(sorted({op for row in ran for op in row["without"]})))
    return not wrong and not died


def show_missed(rows: list[dict]) -> None:
    """Layouts that rules do not offer, dearest first."""
    missed: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for row in rows:
        for op, layouts in row["missed"].items():
            missed[op].update(layouts)
    print(f"layouts that would work and are not offered, in {len(missed)} ops, bytes on 2 devices:")
    some = [(op, layouts) for op, layouts in missed.items() if layouts]
    for op, layouts in sorted(some, key=lambda pair: -max(pair[1].values())):
        text, most = max(layouts.items(), key=lambda kv: kv[1])
        print(f"  {op}: {len(layouts)}, as {text}: {most}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", default="", help="a pattern of entries")
    parser.add_argument("--most", type=int, default=0, help="samples of a dtype and size; 0: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--missed", action="store_true", help="look for layouts not offered")
    options = parser.parse_args()
    prepare()
    from walk import names

    how = f"{options.most}/{'missed' if options.missed else 'offered'}"
    items = [f"{how}/{name}" for name in names() if re.search(options.names, name)]
    rows = list(pool.run_all(__file__, items, options.jobs, MOST, PATIENCE))
    if options.missed:
        show_missed([row for row in rows if "died" not in row])
        return 0
    return 0 if show(rows, not options.names) else 1


if __name__ == "__main__":
    if "--child" in sys.argv:
        prepare()
        pool.serve(handle)
    else:
        sys.exit(main())
