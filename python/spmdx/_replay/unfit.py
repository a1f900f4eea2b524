# SPDX-License-Identifier: Apache-2.0
"""Why a call is not replayed."""


class Unfit(Exception):
    """A call cannot be replayed; the text says why, and goes on after "since "."""
