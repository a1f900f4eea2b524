# SPDX-License-Identifier: Apache-2.0
"""Numbers of bytes as people write them."""

import re
from fractions import Fraction

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def bytes_of(text: str) -> int | None:
    """What a text like "24 GiB" says; None where it says nothing."""
    found = re.fullmatch(rf"\s*([0-9]+(?:\.[0-9]+)?)\s*({'|'.join(UNITS)})\s*", text)
    return None if found is None else int(Fraction(found[1]) * UNITS[found[2]])


def in_bytes(size: float) -> str:
    """As "1.5 MiB", of a number of bytes: with three digits, or as many as a whole number has."""
    unit = [unit for unit, worth in UNITS.items() if worth <= max(size, 1)][-1]
    number = size / UNITS[unit]
    return f"{number:,.0f} {unit}" if number >= 999.5 else f"{number:.3g} {unit}"
