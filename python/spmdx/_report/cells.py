# SPDX-License-Identifier: Apache-2.0
"""Notebooks: which cell runs, what its lines are called there, and HTML for what it shows."""

import io
import linecache
import pathlib
import re
import sys
from typing import Any

_STYLE = "white-space: pre; overflow-x: auto; line-height: normal; font-family: monospace"
_PAGE = f'<pre style="{_STYLE}">{{code}}</pre>'
WIDTH = 120  # of a cell's output, in characters


def as_html(*drawn: Any) -> str:
    """What rich draws, as HTML for a notebook's cell."""
    import rich.console  # what draws is imported when it draws

    console = rich.console.Console(
        file=io.StringIO(), width=WIDTH, record=True, force_jupyter=False
    )
    for part in drawn:
        console.print(part)
    return console.export_html(inline_styles=True, code_format=_PAGE)


def folded(title: str, *drawn: Any) -> str:
    """The same below a title, which a click opens."""
    return f"<details><summary>{title}</summary>{as_html(*drawn)}</details>"


def _shell() -> Any:
    """IPython's shell; None where the program runs in none."""
    loaded = sys.modules.get("IPython")
    return None if loaded is None else loaded.get_ipython()


def running_cell() -> int | None:
    """The number of the cell that runs; None outside of IPython."""
    shell = _shell()
    return None if shell is None else shell.execution_count


def names_of_files() -> dict[str, str]:
    """What a reader calls the files that hold the code of cells: ``"In[3]"`` by the file's name."""
    shell = _shell()
    if shell is None:
        return {}
    found = {path: shell.compile.format_code_name(path) for path in list(linecache.cache)}
    return {pathlib.PurePath(path).name: said[1] for path, said in found.items() if said}


def line_of_cell(source: str, names: dict[str, str]) -> str:
    """``"In[3]:5"`` for a line of a cell, whose file has a number for a name."""
    file, colon, line = source.rpartition(":")
    return f"{names.get(file, file)}{colon}{line}"


def lines_in(text: str, names: dict[str, str]) -> str:
    """A text with the lines that it names, as ``"why at In[3]:5"``, called after their cells."""
    return re.sub(r"\b\d+\.py(?=:\d)", lambda found: names.get(found[0], found[0]), text)
