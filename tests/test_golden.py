# SPDX-License-Identifier: Apache-2.0
"""Golden tests: tests/golden/<pass>/<name>.txt, input above the separator, output below it."""

import pathlib
import shlex
import subprocess

import pytest

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
SEPARATOR = "// -----\n"
CASES = sorted(GOLDEN.glob("*/*.txt"))

# Folders of more than one pass, or that show more than the graph: what they call spmdx-opt with.
COMMANDS = {
    "compile": ["--compile", "--verify", "-"],
    "print": ["-"],
    "rule": ["--rule", "-"],
    "stablehlo": ["--stablehlo", "-"],
    "search": ["--decisions", "-"],
}


def arguments(folder: str, text: str) -> list[str]:
    """A case in reshard/ is a quoted command line; in three the first line names options."""
    if folder == "reshard":
        return ["--reshard", *shlex.split(text, comments=False)]
    if folder in ("errors", "topology", "rematerialise"):
        return shlex.split(text.splitlines()[0].removeprefix("//"))
    return COMMANDS.get(folder, ["--pass", folder, "-"])


def run_case(spmdx_opt: pathlib.Path, path: pathlib.Path, text: str) -> str:
    folder = path.parent.name
    command = [spmdx_opt, *arguments(folder, text)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    if folder == "errors" or path.stem.startswith("refuses_"):
        assert done.returncode == 1, f"exit status {done.returncode}, expected 1\n{done.stderr}"
        return done.stderr
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden(path, spmdx_opt, request):
    text, separator, expected = path.read_text().partition(SEPARATOR)
    actual = run_case(spmdx_opt, path, text)
    if request.config.getoption("--regen"):
        path.write_text(text + SEPARATOR + actual)
        return
    assert separator, f"{path} has no '// -----' line. Run `pytest --regen`, then read the output."
    assert actual == expected


def test_there_are_golden_files():
    assert CASES
