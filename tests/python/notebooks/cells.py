# SPDX-License-Identifier: Apache-2.0
"""What the cells of a notebook showed, in a form that two runs can be compared by.

The rule: every output of a cell counts, except pictures (`image/…`) and all that a cell shows whose
tag is `varies`. Numbers with a decimal point may differ by a hundredth, or by one in their last
digit, since processors round differently; all else is equal, character by character. Of a cell left
out, or a picture, it counts that there is one.
"""

import decimal
import math
import re

VARIES = "varies"
ROUNDING = 1e-2
NUMBER = r"(?<![\w.])-?[\d,]*\d\.\d+(?:e[-+]\d+)?"


def shown(cell):
    """[(kind, text)] of a code cell; pictures have no text, nor has what varies."""
    varies = VARIES in cell.metadata.get("tags", [])
    if varies:
        return [("varies", "")] if cell.outputs else []
    texts = {}  # streams come in pieces, as it happens
    for output in cell.outputs:
        if output.output_type == "stream":
            texts[output.name] = texts.get(output.name, "") + output.text
    found = list(texts.items())
    for output in cell.outputs:
        for kind, text in sorted(output.get("data", {}).items()):
            found.append((kind, "" if kind.startswith("image/") else text))
    return found


def same(stored, fresh):
    """Whether two texts are equal but for the rounding of numbers with a decimal point."""
    if re.split(NUMBER, stored) != re.split(NUMBER, fresh):
        return False
    pairs = zip(re.findall(NUMBER, stored), re.findall(NUMBER, fresh), strict=True)
    return all(close(a, b) for a, b in pairs)


def close(stored, fresh):
    """Whether two numbers, as printed, differ by a hundredth or by one in the last digit only."""
    values = [decimal.Decimal(number.replace(",", "")) for number in (stored, fresh)]
    last = decimal.Decimal((0, (1,), values[0].as_tuple().exponent))
    return math.isclose(*values, rel_tol=ROUNDING, abs_tol=last)


def differences(stored, fresh):
    """[(cell, kind, stored text, fresh text)] of what two runs of one notebook showed otherwise."""
    found = []
    cells = zip(stored.cells, fresh.cells, strict=True)
    for number, pair in enumerate(pair for pair in cells if pair[0].cell_type == "code"):
        before, after = map(shown, pair)
        if [kind for kind, _ in before] != [kind for kind, _ in after]:
            found.append((number + 1, "kinds", str(before), str(after)))
            continue
        for (kind, a), (_, b) in zip(before, after, strict=True):
            if not same(a, b):
                found.append((number + 1, kind, a, b))
    return found
