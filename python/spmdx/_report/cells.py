# SPDX-License-Identifier: Apache-2.0
"""Notebooks: which cell runs, and HTML for what it shows."""

import io
from typing import Any

from spmdx.errors import shell_of_ipython

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


def running_cell() -> int | None:
    """The number of the cell that runs; None outside of IPython."""
    shell = shell_of_ipython()
    return None if shell is None else shell.execution_count
