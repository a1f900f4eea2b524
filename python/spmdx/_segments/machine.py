# SPDX-License-Identifier: Apache-2.0
"""The processor, as far as machine code depends on it."""

import functools
import hashlib
import pathlib
import platform


@functools.cache
def processor() -> str:
    """Another one on a processor that has other instructions: a few letters."""
    told = [platform.machine(), platform.processor()]
    file = pathlib.Path("/proc/cpuinfo")
    if file.exists():
        first, _, _ = file.read_text().partition("\n\n")
        kinds = ("model name", "flags", "Features", "CPU implementer", "CPU part")
        told += [line for line in first.splitlines() if line.startswith(kinds)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def version_of(package: str) -> str:
    """Of an installed package, without importing it; empty if it is not there."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
