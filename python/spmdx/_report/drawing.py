# SPDX-License-Identifier: Apache-2.0
"""A table that a notebook's cell does not show twice."""

import rich.table

from spmdx._base.cells import running_cell


class Drawing(rich.table.Table):
    """A table that its cell has shown already where a call printed it."""

    printed_in: int | None = None

    def _ipython_display_(self) -> None:
        if self.printed_in is None or self.printed_in != running_cell():
            raise NotImplementedError  # it is shown like any other table
