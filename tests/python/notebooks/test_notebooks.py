# SPDX-License-Identifier: Apache-2.0
"""Every notebook of examples/notebooks runs, and shows what is stored: the rule is in cells.py."""

import copy
import importlib.util
import pathlib
import re

import cells
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def run():
    """examples/notebooks/run.py, as a module."""
    spec = importlib.util.spec_from_file_location("run_notebooks", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path):
    return nbformat.read(path, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_shows_what_is_stored(path, run, tmp_path):
    stored = read(path)
    found = cells.differences(stored, run.executed(path, tmp_path))
    told = "\n\n".join(
        f"cell {number}, {kind}: stored\n{a[:2000]}\nnow\n{b[:2000]}"
        for number, kind, a, b in found
    )
    assert not found, f"{path.name} is out of date. Run `make notebooks-run`.\n{told}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_was_run_from_top_to_bottom_without_errors(path):
    notebook = read(path)
    assert [c.execution_count for c in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    assert not [o for c in code(notebook) for o in c.outputs if o.output_type == "error"]
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata["SPDX-License-Identifier"] == "Apache-2.0"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_names_no_place_of_the_machine_that_ran_it(path):
    assert not re.search(r"/(home|root|tmp|work|usr|opt)/|ipykernel_", path.read_text())


def test_a_stored_number_that_is_not_true_is_found():
    stored = read(FOLDER / "data_parallel.ipynb")
    cell = next(
        c for c in code(stored) if "over the wire" in str(c.outputs) and "print" in c.source
    )
    other = copy.deepcopy(stored)
    assert cells.differences(stored, other) == []
    (wrong,) = [c for c in other.cells if c.id == cell.id]
    wrong.outputs[0].text = re.sub(r"(\d),(\d)", r"\g<1>,9\g<2>", wrong.outputs[0].text, count=1)
    assert len(cells.differences(stored, other)) == 1


def test_only_numbers_with_a_decimal_point_may_differ_in_rounding():
    assert cells.same("loss 2.3039 -> 0.003", "loss 2.3038 -> 0.004")
    assert cells.same("-1,000.5 ms", "-1,003.5 ms") and not cells.same("0.003", "0.005")
    assert not cells.same("loss 2.30", "loss 2.40")
    assert not cells.same("605,224 bytes", "605,225 bytes")
    assert not cells.same("1 all_reduce", "2 all_reduce")
