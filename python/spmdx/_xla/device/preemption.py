# SPDX-License-Identifier: Apache-2.0
"""A SIGTERM that asks a program to save and end: noted, and told at the next step."""

import signal
from types import FrameType
from typing import Any

_state: dict[str, Any] = {"before": None, "active": False, "came": False}


def _note(number: int, frame: FrameType | None) -> None:
    _state["came"] = True


def activate() -> None:
    """Notes signals from here on; in the main thread."""
    if not _state["active"]:
        _state.update(active=True, came=False, before=signal.signal(signal.SIGTERM, _note))


def deactivate() -> None:
    """Gives the signal back its meaning."""
    if _state["active"]:
        signal.signal(signal.SIGTERM, _state["before"] or signal.SIG_DFL)
        _state.update(active=False, came=False)


def reached(step: int) -> bool:
    """Whether the signal has come."""
    if not _state["active"]:
        raise RuntimeError("no signals are noted. Make a CheckpointManager first.")
    return bool(_state["came"])
