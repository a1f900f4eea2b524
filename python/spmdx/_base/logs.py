# SPDX-License-Identifier: Apache-2.0
"""The loggers, by subject. They are silent unless the program, or ``SPMDX_LOG``, asks them."""

import logging
import sys

planning = logging.getLogger("spmdx.planning")
running = logging.getLogger("spmdx.running")
checkpoint = logging.getLogger("spmdx.checkpoint")
world = logging.getLogger("spmdx.world")

LEVELS = ("info", "debug")


def install(level: str) -> None:
    """Keeps the loggers silent by default; prints to stderr what ``level`` asks for, if it does.

    Args:
        level: one of ``LEVELS``, or empty.
    """
    parent = logging.getLogger("spmdx")
    parent.addHandler(logging.NullHandler())
    if not level:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    parent.addHandler(handler)
    parent.setLevel(level.upper())


def log_plan(
    ops: int, devices: int, collectives: int, wire_bytes: int, peak_bytes: int, took_ns: int
) -> None:
    """What is said of a plan that was made."""
    planning.info(
        "planned %d ops for %d devices in %.3f s: %d collectives, %d bytes over the wire and %d "
        "bytes of memory a device",
        ops,
        devices,
        took_ns / 1e9,
        collectives,
        wire_bytes,
        peak_bytes,
    )
