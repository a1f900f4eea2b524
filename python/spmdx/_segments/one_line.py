# SPDX-License-Identifier: Apache-2.0
"""Errors of compilers, which may be pages, as a line of a report or a warning."""

import traceback

_MOST = 300  # letters


def one_line(text: str) -> str:
    """Its words, as far as they are no pages."""
    words = " ".join(text.split())
    return words if len(words) <= _MOST else words[: _MOST - 1] + "…"


def of_error(error: BaseException) -> str:
    """The kind of the error and what it says."""
    return one_line(traceback.format_exception_only(error)[-1])
