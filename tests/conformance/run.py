# SPDX-License-Identifier: Apache-2.0
"""Every op, module and optimizer of torch's own test tables on meshes, against plain PyTorch.

    python tests/conformance/run.py [--suites ops] [--settings '4 even'] [--dtypes bf16,c64]
        [--names 'nn.*'] [--jobs 2]

Prints a table a suite, then every difference, error, crash and hang. The status is 0 if there is
none but of the entries in exceptions.py.
"""

import argparse
import importlib
import json
import pathlib
import re
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python" / "helpers"))
import pool  # noqa: E402
import report  # noqa: E402
from settings import DTYPES, SETTINGS, SETTINGS_QUICK  # noqa: E402

MOST = 60  # entries a process takes
PATIENCE = 300  # seconds without a finished placement: it hangs
SUITES = {
    "ops": "op_oracle",
    "modules": "module_oracle",
    "optimizers": "optim_oracle",
    "layouts": "layout_oracle",
    "slices": "slice_oracle",
}


def prepare() -> None:
    """Moving is free, so that all is cut that a rule allows; memory that nobody owns holds NaN."""
    import spmdx
    from composites import least_work

    warnings.filterwarnings("ignore")
    least_work().__enter__()
    spmdx._C.set_checks(poison=True)


def handle(item: str, sign) -> dict:
    """The child's part: one entry of a suite in one setting."""
    suite, key, short, name = item.split("/", 3)
    oracle, dtype = importlib.import_module(SUITES[suite]), DTYPES[short]
    entry = next(e for e in oracle.entries(dtype) if oracle.name_of(e) == name)
    verdict = oracle.judge(
        entry, (SETTINGS | SETTINGS_QUICK)[key], lambda *at: sign(repr(at)), dtype
    )
    return vars(verdict) | {"troubles": len(verdict.trouble), "trouble": verdict.trouble[:20]}


def items_of(options: argparse.Namespace) -> list[str]:
    """``suite/setting/dtype/name`` of all that is asked for."""
    items = []
    for suite in options.suites.split(","):
        oracle = importlib.import_module(SUITES[suite])
        for short in options.dtypes.split(","):
            names = [oracle.name_of(e) for e in oracle.entries(DTYPES[short])]
            chosen = [name for name in dict.fromkeys(names) if re.search(options.names, name)]
            for key in options.settings.split(","):
                if (key, short) in getattr(oracle, "ASKED", {(key, short)}):
                    items += [f"{suite}/{key}/{short}/{name}" for name in chosen]
    return items


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--suites", default=",".join(SUITES), help="of ops, modules, optimizers, layouts, slices"
    )
    parser.add_argument("--settings", default=",".join(SETTINGS), help="of settings.py")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="of settings.py")
    parser.add_argument("--names", default="", help="a pattern of names")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--out", help="a file that gets a line of JSON an entry")
    options = parser.parse_args()
    prepare()
    rows = []
    for row in pool.run_all(__file__, items_of(options), options.jobs, MOST, PATIENCE):
        rows.append(row)
        if options.out:
            with open(options.out, "a") as out:
                print(json.dumps(row), file=out)
    return report.show(rows)


if __name__ == "__main__":
    if "--child" in sys.argv:
        prepare()
        pool.serve(handle)
    else:
        sys.exit(1 if main() else 0)
