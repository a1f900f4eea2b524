# SPDX-License-Identifier: Apache-2.0
"""Kinds of devices, by their names."""

import dataclasses
import os
from collections.abc import Mapping

from spmdx._compiling.in_force import installed
from spmdx._machine.hardware import Hardware, hardware_names, hardware_of
from spmdx._machine.in_use import get_hardware
from spmdx._targets import tpu
from spmdx.errors import ShardingError

Told = Hardware | str | os.PathLike
# By compiler: the machines that run its kernels, where that is not the CPU alone.
_MACHINES = {"hls": ("sim",), "xla": ("cpu", "tpu")}
_PROFILES = {"sim": "stratix-10"}


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
        ImportError: it is a TPU, and libtpu is not installed.
        ShardingError: nothing is called so, or there is no such machine.
    """
    runs, at, profile = name.partition("@")
    compiler, colon, machine = runs.rpartition(":")
    known = [c for c in installed() if c == compiler]
    is_machine = machine in _machines(compiler)
    if not is_machine or bool(colon) != bool(known) or bool(at) != bool(profile):
        kinds = ["cpu", *(f"{c}:{at}" for c in installed() for at in _machines(c))]
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
    if compiler == "xla":
        _require_platform(machine)
    if name in profiles:
        found = hardware_of(profiles[name])
    elif usual := profile or _usual_profile(name, machine):
        found = hardware_of(usual)
    else:
        found = get_hardware()
    return Kind(name, compiler or None, found, own_memory=machine != "cpu")


def _machines(compiler: str) -> tuple[str, ...]:
    return _MACHINES.get(compiler, ("cpu",))


def _require_platform(machine: str) -> None:
    """XLA has one client in a process, which is that of ``PJRT_DEVICE``."""
    if tpu.is_asked_for() != (machine == "tpu"):
        told = "CPU, or not set" if machine == "tpu" else "TPU"
        raise ShardingError(
            f"devices of kind 'xla:{machine}' are asked for, and {tpu.VARIABLE} is {told}. "
            "Expected the same, since a process has one client of XLA's. Write "
            f"{tpu.VARIABLE}={machine.upper()}."
        )
    if machine == "tpu":
        tpu.require()


def _usual_profile(name: str, machine: str) -> str:
    """Of a machine; empty: what :func:`get_hardware` says."""
    if machine != "tpu":
        return _PROFILES.get(machine, "")
    profile = f"tpu-{tpu.chips()[0]}"
    if profile in hardware_names():
        return profile
    raise ShardingError(
        f"no profile of hardware is known of this machine's {profile}. Expected one of "
        f"{', '.join(hardware_names())}, or one of yours. Write '{name}@tpu-v5p', or hardware="
        f"{{{name!r}: spmdx.Hardware(...)}}."
    )
