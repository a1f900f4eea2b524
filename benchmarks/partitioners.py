# SPDX-License-Identifier: Apache-2.0
"""Collectives of plans beside those of XLA's partition of the same programs, as exported.

    python benchmarks/partitioners.py [--names REGEX] [--hlo]

Every row is a small annotated program. Left is what spmdx plans for it, right what XLA's
partitioner (Shardy) makes of `spmdx.export.stablehlo`, whose numbers are compared with plain
PyTorch's. Bytes are those that one device receives, by the same formulas on both sides. `--hlo`
prints XLA's programs. The exit status is 1 where numbers are off. It needs jaxlib.
"""

import argparse
import re
import sys
from pathlib import Path

import spmdx

sys.path.insert(0, str(Path(__file__).parent / "partitioners"))
from partitioner_programs import PROGRAMS  # noqa: E402
from partitioner_row import BOUND, line_of, row_of  # noqa: E402
from partitioner_xla import DEVICES  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", default="", help="a regular expression")
    parser.add_argument("--hlo", action="store_true", help="print XLA's programs")
    given = parser.parse_args()
    spmdx.runtime.set_device_count(DEVICES)
    print("| program | mesh | spmdx | bytes | XLA | bytes |\n|---|---|---|---|---|---|")
    wrong = []
    for name in filter(re.compile(given.names).search, PROGRAMS):
        row = row_of(name)
        print(line_of(name, row), flush=True)
        if not row.off <= BOUND:
            wrong.append(f"{name}: XLA's numbers are off by {row.off:.1e} of the largest")
        if given.hlo:
            print(row.hlo)
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
