# SPDX-License-Identifier: Apache-2.0
"""Predictions beside what others measured: the page shows the figures, and they come out again."""

import pathlib
import sys

import pytest
import spmdx

BENCHMARKS = pathlib.Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS / "foresight"))
import shown  # noqa: E402
from fitting import fitted, mean_error, rank_correlation, scaled, trivial  # noqa: E402
from tables import TABLES  # noqa: E402

spmdx.runtime.set_device_count(8)
FIGURES = shown.read()
# Those that are planned in some seconds, by table.
QUICK = {"Megatron-LM 2021": [0, 1], "Megatron-LM 2022": [0], "torchtitan 8B": [1]}


def test_the_page_shows_the_figures():
    text = shown.PAGE.read_text()
    assert text == shown.page(text, FIGURES)
    assert set(FIGURES) == {table.name for table in TABLES}
    assert [at[1] for at in shown.TABLE.findall(text)] == [table.name for table in TABLES]


@pytest.mark.parametrize("table", [t for t in TABLES if t.name in QUICK], ids=lambda t: t.name)
def test_figures_come_out_again(table):
    hardware = scaled(table.hardware, FIGURES[table.name]["share"])
    for at in QUICK[table.name]:
        row = table.rows[at]
        name, published, predicted, _ = FIGURES[table.name]["rows"][at]
        assert (row.name, row.figure) == (name, published)
        again = published * row.seconds / table.predict(row, hardware)
        assert again == pytest.approx(predicted, rel=1e-3)  # the share is rounded


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("Megatron-LM 2021", 0.05),
        ("Megatron-LM 2022", 0.07),
        ("Llama 3 405B", 0.1),
        ("torchtitan 8B", 0.1),
    ],
)
def test_mean_errors_are_small(name, most):
    own, others, _ = shown.judged(FIGURES[name])
    assert mean_error(own) <= most
    assert len(own) == len(FIGURES[name]["rows"]) - 1
    if name.startswith("Megatron"):  # of the others all rows are nearly the same
        assert mean_error(own) < mean_error(others)


def test_the_constant_is_found():
    table = next(t for t in TABLES if t.name == "Megatron-LM 2021")

    def seconds_by(hardware):  # a third of the step is products
        share = hardware.product_efficiency[0][1] / table.hardware.product_efficiency[0][1]
        return 2 + 1 / share

    share, hardware = fitted(table.hardware, seconds_by, 3.6)
    assert share == pytest.approx(0.625) and seconds_by(hardware) == pytest.approx(3.6)


def test_the_measures_of_errors():
    assert trivial([1.0, 2.0, 6.0]) == [4.0, 3.5, 1.5]
    assert mean_error([0.1, -0.3]) == pytest.approx(0.2)
    assert rank_correlation([1, 2, 3], [10, 30, 20]) == pytest.approx(0.5)
