# SPDX-License-Identifier: Apache-2.0
"""Kinds of devices, by their names."""

import dataclasses
import os
from collections.abc import Mapping

from spmdx._compiling.in_force import installed
from spmdx._machine.hardware import Hardware, hardware_names, hardware_of
from spmdx._machine.in_use import get_hardware
from spmdx.errors import ShardingError

Told = Hardware | str | os.PathLike
_SIMULATED = {"hls": ("sim", "stratix-10")}  # compiler: its machine, and the profile of that


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a device is: who compiles for it, and what it can do."""

    name: str
    compiler: str | None  # None: PyTorch's kernels, or what set_compiler says
    hardware: Hardware
    own_memory: bool


def kind_named(name: str, profiles: Mapping[str, Told]) -> Kind:
    """What ``"cpu"``, ``"xla:cpu"``, ``"hls:sim"`` or ``"cpu@a100-80"`` means.

    Args:
        profiles: hardware, by the name of a kind.

    Raises:
        ShardingError: nothing is called so.
    """
    runs, at, profile = name.partition("@")
    compiler, colon, machine = runs.rpartition(":")
    own, usual = _SIMULATED.get(compiler, ("cpu", ""))
    known = [c for c in installed() if c == compiler]
    if machine != own or bool(colon) != bool(known) or bool(at) != bool(profile):
        kinds = ["cpu", *(f"{c}:{_SIMULATED.get(c, ('cpu', ''))[0]}" for c in installed())]
        raise ShardingError(
            f"no kind of device is called {name!r}. Expected one of {', '.join(kinds)}, and behind "
            "it @ and a profile of hardware, if it is another. Write 'cpu' or 'cpu@v100-32'."
        )
    if profile and profile not in hardware_names() and name not in profiles:
        raise ShardingError(
            f"no profile of hardware is called {profile!r}, which {name!r} names. Expected one of "
            f"{', '.join(hardware_names())}, or an entry for {name!r}. Write hardware={{{name!r}: "
            "spmdx.Hardware(...)}."
        )
    told = profiles.get(name, profile or usual)
    found = hardware_of(told) if told else get_hardware()
    return Kind(name, compiler or None, found, own_memory=own != "cpu")
