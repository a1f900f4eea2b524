# SPDX-License-Identifier: Apache-2.0
"""The machine that plans are made for: what its devices are, and what joins them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import spmdx._C as _C
from spmdx._machine.hardware import Hardware, hardware_of
from spmdx._machine.topology import Topology
from spmdx._program.memory_limit import get_memory_limit, limit_to
from spmdx.errors import ShardingError, naming

_topology: Topology | None = None
_hardware: Hardware | None = None


def _use(topology: Topology | None, hardware: Hardware | None) -> None:
    """Plan for these from now on; where they are refused, all stays as it was."""
    global _topology, _hardware
    fields = (topology or Topology.named("in-process"))._fields()
    if hardware is not None:
        fields["hardware"] = hardware._fields()
    _C.set_topology(fields)
    _topology, _hardware = topology, hardware


def _topology_of(told: Topology | str | os.PathLike) -> Topology:
    """A topology, or what has that name, or what a file holds."""
    if isinstance(told, Topology):
        return told
    name = os.fspath(told) if isinstance(told, (str, os.PathLike)) else told
    if not isinstance(name, str):
        raise ShardingError(
            f"the argument is a {type(told).__name__}. Expected a spmdx.Topology, its "
            "name or a file. Write 'gloo', or the path of a JSON file."
        )
    known = name in _C.topology_names() or not (name and Path(name).exists())
    return Topology.named(name) if known else Topology.load(name)


def set_topology(topology: Topology | str | os.PathLike) -> None:
    """Say what the devices are joined by. Plans made for another topology are forgotten.

    Devices are those of the topology's hardware, unless :func:`set_hardware` says what they are.

    Args:
        topology: a :class:`Topology`, the name of one that comes with spmdx, or a file.

    Raises:
        ShardingError: none of these.

    Example:
        >>> import spmdx
        >>> spmdx.set_topology("infiniband")
        >>> spmdx.get_topology().name
        'infiniband'
        >>> spmdx.set_topology("in-process")
    """
    with naming("set_topology"):
        _use(_topology_of(topology), _hardware)


def get_topology() -> Topology:
    """The topology that plans are made for.

    Returns:
        What :func:`set_topology` or ``SPMDX_TOPOLOGY`` said; ``"in-process"`` if neither did. Its
        hardware is what :func:`set_hardware` said, if it did.

    Example:
        >>> import spmdx
        >>> spmdx.get_topology().name
        'in-process'
    """
    return Topology._of(_topology.name if _topology else "in-process", _C.topology())


def set_hardware(
    hardware: Hardware | str | os.PathLike | None,
    topology: Topology | str | os.PathLike | None = None,
) -> None:
    """Say what the devices are. Plans made for others are forgotten.

    Where the profile tells how much memory a device has, that becomes the limit of
    :func:`spmdx.set_memory_limit`, which goes with it.

    Args:
        hardware: a :class:`spmdx.Hardware`, the name of one that comes with spmdx, or a TOML file;
            None: what the topology says again.
        topology: what joins them, as :func:`set_topology` takes it; None: what joins them now.

    Raises:
        ShardingError: none of these.

    Example:
        >>> import spmdx
        >>> spmdx.set_hardware("h100-80", topology="infiniband")
        >>> print(spmdx.get_hardware().name)
        h100-80
        >>> spmdx.set_hardware(None, topology="in-process")
    """
    with naming("set_hardware"):
        found = None if hardware is None else hardware_of(hardware)
        joined = _topology if topology is None else _topology_of(topology)
        _use_with_its_memory(joined, found)


def _use_with_its_memory(topology: Topology | None, hardware: Hardware | None) -> None:
    before = _hardware.memory_bytes if _hardware else 0
    _use(topology, hardware)
    told = hardware.memory_bytes if hardware else 0
    if told or before and before == get_memory_limit():
        limit_to(told or None)


@contextlib.contextmanager
def planning_for(
    hardware: Hardware | str | os.PathLike | None, topology: Topology | str | os.PathLike | None
) -> Iterator[None]:
    """A block in which plans are made for these, as :func:`set_hardware` takes them.

    What is None stays what it is; a topology may bring hardware. What that has of memory is the
    limit; without any, the limit that was set stays. Where there is none, it is the memory of what
    the topology in use has for hardware.
    """
    before, limit = (_topology, _hardware), get_memory_limit()
    joined = _topology if topology is None else _topology_of(topology)
    found = _brought_by(topology) if hardware is None else hardware_of(hardware)
    try:
        if found is not None:
            _use_with_its_memory(joined, found)
        elif joined is not _topology:
            _use(joined, _hardware)
        if get_memory_limit() is None and _hardware is None:
            limit_to(get_hardware().memory_bytes or None)
        yield
    finally:
        _use(*before)
        limit_to(limit)


def _brought_by(topology: Topology | str | os.PathLike | None) -> Hardware | None:
    """The hardware of a topology, where it is other than that of those that come with spmdx."""
    if topology is None:
        return None
    hardware = hardware_of(_topology_of(topology).hardware)
    usual = [Topology.named(name).hardware for name in _C.topology_names()]
    return None if hardware in usual else hardware


def get_hardware() -> Hardware:
    """The hardware that plans are made for.

    Returns:
        What :func:`set_hardware` said; what the topology says if it did not.

    Example:
        >>> import spmdx
        >>> spmdx.get_hardware().name
        'cpu'
    """
    return hardware_of(get_topology().hardware)
