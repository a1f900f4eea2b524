# SPDX-License-Identifier: Apache-2.0
"""TPUs of this machine: whether they are asked for, which there are, and whether libtpu begins."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading

from spmdx._segments.one_line import one_line
from spmdx.errors import ShardingError

VARIABLE = "PJRT_DEVICE"
_PLATFORMS = ("CPU", "TPU")
_GOOGLE = "0x1ae0"
# Source: https://github.com/jax-ml/jax/blob/main/jax/_src/hardware_utils.py
_CHIPS = {
    "0x0027": "v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "7x",
}
# The first chip alone, and no other machines of a slice, which would be waited for.
# Source: https://gist.github.com/skye/f82ba45d2445bb19d53545538754f9a3
SETTINGS = {
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
    "TPU_PROCESS_BOUNDS": "1,1,1",
    "TPU_VISIBLE_DEVICES": "0",
    "TPU_LOG_DIR": "disabled",
}
_SECONDS = 120.0  # that libtpu may take to begin
_works = threading.Event()  # it has begun once: from then on the chip may be this process's own


def is_asked_for() -> bool:
    """Whether ``PJRT_DEVICE`` is ``TPU``, which is read now.

    Raises:
        ShardingError: it is something else than that and ``CPU``.
    """
    told = os.environ.get(VARIABLE, "").strip().upper() or "CPU"
    if told not in _PLATFORMS:
        raise ShardingError(
            f"{VARIABLE} is {os.environ[VARIABLE]!r}, for which compiler 'xla' has no client. "
            f"Expected 'CPU' or 'TPU'. Unset it, or write {VARIABLE}=CPU."
        )
    return told == "TPU"


def may_be_used() -> bool:
    """Whether it is asked for, and there is one as far as the bus knows."""
    return os.environ.get(VARIABLE, "").strip().upper() == "TPU" and bool(chips())


def chips(system: pathlib.Path = pathlib.Path("/sys")) -> list[str]:
    """What Google calls each chip of this machine, as ``"v4"``; libtpu is not asked."""
    found = []
    for folder in sorted((system / "bus" / "pci" / "devices").glob("*")):
        try:
            vendor, device = ((folder / name).read_text().strip() for name in ("vendor", "device"))
        except OSError:
            continue
        if vendor == _GOOGLE and device in _CHIPS:
            found.append(_CHIPS[device])
    return found


def library() -> pathlib.Path:
    """Where libtpu lies.

    Raises:
        ImportError: it is not installed.
    """
    found = importlib.util.find_spec("libtpu")
    folders = (found and found.submodule_search_locations) or ()
    for folder in folders:
        return pathlib.Path(folder) / "libtpu.so"
    raise ImportError("no module named 'libtpu'. Install it: pip install --no-deps libtpu")


def require() -> None:
    """Return if there is a TPU that works; libtpu is tried in a process of its own, once.

    It waits for machines, or ends its process, where something is wrong.

    Raises:
        ImportError: libtpu is not installed.
        ShardingError: there is no TPU, or it cannot be used.
    """
    found = chips()
    if not found:
        raise ShardingError(
            f"{VARIABLE} is 'TPU', and this machine has none: no PCI device of Google's that is a "
            f"TPU of {', '.join(_CHIPS.values())}. Expected one. Write {VARIABLE}=CPU, or start "
            "the program on a TPU VM."
        )
    library()
    if _works.is_set():
        return
    trouble = _trouble(_SECONDS)
    if trouble:
        raise ShardingError(
            f"{VARIABLE} is 'TPU', and this machine has {len(found)} ({found[0]}), but libtpu "
            f"cannot use it: {trouble}. Expected a TPU that no other process has. End that, or "
            f"write {VARIABLE}=CPU."
        )
    _works.set()


def _trouble(seconds: float) -> str:
    """Why a client cannot be made here; empty if one was."""
    code = "from spmdx._targets import pjrt; pjrt.make_tpu()"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        return f"it had not begun after {seconds:g} s"
    if tried.returncode == 0:
        return ""
    last = next((line for line in tried.stderr.splitlines()[::-1] if line.strip()), "silent")
    return f"it ended with status {tried.returncode} ({one_line(last)})"
