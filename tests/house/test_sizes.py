# SPDX-License-Identifier: Apache-2.0
"""Sizes: a file holds one concept, a function fits on a screen."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_LINES, MOST_OF_A_FUNCTION = 350, 60
LONG = {
    "csrc/rules/table.cpp": "a row for each op",
}
SOURCES = sorted(
    path
    for folder in ("csrc", "python", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".h", ".cpp", ".py", ".pyi")
)
# A definition of C++ at the margin or within a class ends at a brace in the column where it began.
BEGIN = re.compile(
    r"^( {0,4})(?!namespace|struct|class|enum|union|else|for|if|while|switch|do\b|try"
    r"|[A-Z_0-9]+\(|\}|//|#)\S.*\{$"
)


def name(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def functions_of_python(text: str) -> list[tuple[str, int]]:
    """Names and lines of functions, their docstrings not counted."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0]
            said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            docstring = first.end_lineno - first.lineno + 1 if said else 0
            found.append((node.name, node.end_lineno - node.lineno + 1 - docstring))
    return found


def functions_of_cpp(text: str) -> list[tuple[str, int]]:
    """First lines and numbers of lines of functions and of tables."""
    found, lines = [], text.splitlines()
    for at, line in enumerate(lines):
        if (begin := BEGIN.match(line)) and "(" in line:
            end = next(
                (i for i in range(at, len(lines)) if lines[i].startswith(begin[1] + "}")), at
            )
            found.append((line.strip(), end - at + 1))
    return found


def test_long_functions_are_found():
    body = "\n".join("  x();" for _ in range(70))
    assert functions_of_cpp(f"void f(int a) {{\n{body}\n}}\n") == [("void f(int a) {", 72)]
    assert functions_of_python('def f():\n    """A.\n\n    B."""\n    return 1\n') == [("f", 2)]


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_is_short(path):
    if name(path) not in LONG:
        assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_short(path):
    text = path.read_text()
    found = functions_of_python(text) if path.suffix.startswith(".py") else functions_of_cpp(text)
    assert [(what, size) for what, size in found if size > MOST_OF_A_FUNCTION] == []


@pytest.mark.parametrize("listed", sorted(LONG))
def test_what_may_be_long_is(listed):
    assert len((ROOT / listed).read_text().splitlines()) > MOST_LINES
