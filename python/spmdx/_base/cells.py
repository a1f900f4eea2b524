# SPDX-License-Identifier: Apache-2.0
"""What rich draws, as text and as HTML for a notebook's cell, and which cell runs."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spmdx.errors import shell_of_ipython

if TYPE_CHECKING:  # what draws is imported when it draws
    import rich.table
    import rich.text

_STYLE = "white-space: pre; overflow-x: auto; line-height: normal; font-family: monospace"
_PAGE = f'<pre style="{_STYLE}">{{code}}</pre>'
WIDTH = 120  # of a cell's output, in characters
_WHERE_TOLD = "where told"  # of a field's metadata


def as_html(*drawn: Any) -> str:
    """What rich draws, as HTML for a notebook's cell."""
    import rich.console

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


class Drawn:
    """What rich draws: tables where it is printed, and as the last line of a notebook's cell."""

    def __str__(self) -> str:
        return printed(self)

    def __repr__(self) -> str:
        return printed(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def printed(renderable: Any) -> str:
    """What rich draws, as text without colours."""
    import rich.console

    buffer = io.StringIO()
    console = rich.console.Console(file=buffer, width=160, color_system=None, force_jupyter=False)
    console.print(renderable)
    return buffer.getvalue().rstrip()


def _cell(value: Any) -> rich.text.Text:
    import rich.text

    text = f"{value:,}" if isinstance(value, int) else value
    return rich.text.Text(", ".join(map(str, text)) if isinstance(text, tuple) else str(text))


def where_told(default: Any) -> Any:
    """A field of a dataclass that tables need not show."""
    return dataclasses.field(default=default, metadata={_WHERE_TOLD: True})


def table(title: str, row_type: type, rows: Sequence[Any]) -> rich.table.Table:
    """A table with a column for each field of a dataclass.

    Fields made by :func:`where_told` have one where some row has another value than their default.
    """
    import rich.table

    drawn = rich.table.Table(title=title, title_justify="left")
    names = [
        field.name
        for field in dataclasses.fields(row_type)
        if not field.metadata.get(_WHERE_TOLD)
        or any(getattr(row, field.name) != field.default for row in rows)
    ]
    for name in names:
        number = name in ("bytes", "count", "group_size")
        drawn.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(_cell(getattr(row, name)) for name in names))
    return drawn
