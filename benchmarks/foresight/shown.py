# SPDX-License-Identifier: Apache-2.0
"""The figures that were predicted last, and how the page shows them."""

import json
import pathlib
import re

from fitting import errors, mean_error, rank_correlation, trivial

FIGURES = pathlib.Path(__file__).parent / "figures.json"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "foresight.md"
TABLE = re.compile(r"(<!-- table: (.+?) -->\n)[^!]*(<!-- end -->)")


def read():
    """By name of a table, its figures."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def written(figures):
    """Keeps them, and puts them into the page."""
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), figures))


def page(text, figures):
    """The page with the tables of these figures; others stay as they are."""

    def with_table(at):
        return f"{at[1]}{drawn(figures[at[2]])}\n{at[3]}" if at[2] in figures else at[0]

    return TABLE.sub(with_table, text)


def judged(figures):
    """Of a table, without the row that was fitted: the errors, theirs of the trivial predictor."""
    rows = [row for row in figures["rows"] if not row[3]]
    published, predicted = [r[1] for r in rows], [r[2] for r in rows]
    mean = trivial([r[1] for r in figures["rows"]])
    left = [m for m, r in zip(mean, figures["rows"], strict=True) if not r[3]]
    return errors(predicted, published), errors(left, published), (predicted, published)


def drawn(figures):
    """A table of the page."""
    unit = figures["unit"]
    lines = [f"| | published, {unit} | predicted | error |", "|---|---|---|---|"]
    for name, published, predicted, is_fitted in figures["rows"]:
        error = "fitted" if is_fitted else f"{predicted / published - 1:+.1%}"
        lines.append(f"| {name} | {published:,.4g} | {predicted:,.4g} | {error} |")
    own, others, both = judged(figures)
    said = (
        f"Products reach {figures['share']:.1%} of the profile's rates. Mean error "
        f"**{mean_error(own):.1%}**, largest {max(map(abs, own)):.1%}; of the trivial predictor "
        f"{mean_error(others):.1%}"
    )
    if len(own) > 2:
        said += f"; rank correlation {rank_correlation(*both):.2f}"
    return "\n".join([*lines, "", said + "."])
