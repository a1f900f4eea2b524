# SPDX-License-Identifier: Apache-2.0
"""Topology: how fast the links between devices are, which is what plans are costed with."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import spmdx._C as _C
from spmdx._base.arguments import require_path
from spmdx.errors import ShardingError, bare, naming

_name = "in-process"


@dataclasses.dataclass(frozen=True)
class Level:
    """The links that join the devices of one block.

    Args:
        devices: how many consecutive device ids a block holds; 0 means what a
            :class:`spmdx.HybridMesh` calls inner, and everything on the last level.
        latency_ns: nanoseconds to start a collective.
        message_ns: nanoseconds for every message that a device waits for in turn.
        picoseconds_per_byte: time of a byte that a device receives: 500 is 2 GB/s.

    Example:
        >>> import spmdx
        >>> spmdx.Topology.named("gloo").levels[0].picoseconds_per_byte
        800
    """

    devices: int = 0
    latency_ns: int = 5_000
    message_ns: int = 50
    picoseconds_per_byte: int = 500


@dataclasses.dataclass(frozen=True)
class Topology:
    """Levels of links, the innermost and fastest first. Immutable.

    Args:
        name: what to call it.
        levels: at least one; a collective takes the time of the slowest level it needs.
        picoseconds_per_flop: time of one floating-point operation of a device.
        picoseconds_per_local_byte: time of one byte of a device's own memory.

    Raises:
        ShardingError: no name, no level, or a number that is negative or of another type.

    Example:
        >>> import spmdx
        >>> [level.devices for level in spmdx.Topology.named("infiniband").levels]
        [8, 0]

    Source: the α-β model of R. W. Hockney, Parallel Computing 20(3), 1994.
    """

    name: str
    levels: tuple[Level, ...]
    picoseconds_per_flop: float = 50.0
    picoseconds_per_local_byte: int = 100

    def __post_init__(self) -> None:
        with naming("Topology"):
            if not isinstance(self.name, str):
                raise ShardingError(
                    f"the name is {self.name!r}. Expected a string. Write 'measured'."
                )
            if isinstance(self.levels, list):
                object.__setattr__(self, "levels", tuple(self.levels))
            if not _are_levels(self.levels):
                raise ShardingError(
                    f"the levels are {self.levels!r}. Expected one or more spmdx.topology.Level. "
                    "Write (Level(latency_ns=5000),) for links that are all alike."
                )
            for field, value in self._numbers():
                whole = isinstance(value, int) and not isinstance(value, bool)
                if not (whole or field == "picoseconds_per_flop" and isinstance(value, float)):
                    raise ShardingError(f"{field} is {value!r}. Expected an int. Write 500.")
                if not 0 <= value < 2**53:
                    raise ShardingError(
                        f"{field} is {value!r}. Expected at least 0 and below 2**53. Write 500."
                    )

    def _numbers(self) -> Iterator[tuple[str, Any]]:
        for i, level in enumerate(self.levels):
            for field, value in dataclasses.asdict(level).items():
                yield f"{field} of level {i}", value
        yield "picoseconds_per_flop", self.picoseconds_per_flop
        yield "picoseconds_per_local_byte", self.picoseconds_per_local_byte

    @classmethod
    def named(cls, name: str) -> "Topology":
        """A topology that comes with spmdx: orders of magnitude to plan with before measuring.

        Args:
            name: ``"in-process"``, ``"gloo"``, ``"nvlink"`` (one node) or ``"infiniband"``
                (nodes of 8 devices on NVLink).

        Returns:
            The topology.

        Raises:
            ShardingError: another name.

        Example:
            >>> import spmdx
            >>> len(spmdx.Topology.named("nvlink").levels)
            1
        """
        with naming("Topology.named"):
            return cls._of(name, _C.topology_named(str(name)))

    @classmethod
    def _of(cls, name: str, fields: dict[str, Any]) -> "Topology":
        return cls(name=name, **{**fields, "levels": tuple(Level(**f) for f in fields["levels"])})

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Topology":
        """The topology that :meth:`save` wrote to a file.

        Args:
            path: a JSON file.

        Returns:
            The topology.

        Raises:
            ShardingError: no such file, or not what :meth:`save` writes.

        Example:
            >>> import spmdx, tempfile
            >>> path = tempfile.mkdtemp() + "/gloo.json"
            >>> spmdx.Topology.named("gloo").save(path)
            >>> spmdx.Topology.load(path) == spmdx.Topology.named("gloo")
            True
        """
        with naming("Topology.load"):
            try:
                with open(os.fspath(path), encoding="utf-8") as file:
                    fields = json.load(file)
                if not isinstance(fields, dict):
                    raise TypeError(f"it holds a {type(fields).__name__}")
                return cls._of(fields.pop("name"), fields)
            except ShardingError as error:
                raise ShardingError(f"{path}: {bare(error)}") from None
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                shown = path or repr(path)
                raise ShardingError(
                    f"{shown} is no topology: {type(error).__name__}: {error}. Expected a JSON "
                    "file with name and levels. Write one with Topology.save or spmdx.calibrate."
                ) from None

    def save(self, path: str | os.PathLike) -> None:
        """Write the topology to a JSON file, whole or not at all.

        Args:
            path: the file; replaced where it exists.

        Raises:
            ShardingError: it is no path.
            OSError: it cannot be written.

        Example:
            >>> import spmdx, tempfile
            >>> spmdx.Topology.named("gloo").save(tempfile.mkdtemp() + "/gloo.json")
        """
        with naming("Topology.save"):
            require_path(path, "links.json")
        text = json.dumps(dataclasses.asdict(self), indent=2) + "\n"
        partial = Path(f"{os.fspath(path)}.{os.getpid()}.tmp")
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def _fields(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        del fields["name"]
        return fields


def _are_levels(levels: Any) -> bool:
    known = isinstance(levels, tuple) and all(isinstance(level, Level) for level in levels)
    return known and len(levels) > 0


def set_topology(topology: Topology | str | os.PathLike) -> None:
    """Say what the devices are joined by. Plans made for another topology are forgotten.

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
    global _name
    with naming("set_topology"):
        if not isinstance(topology, Topology):
            name = os.fspath(topology) if isinstance(topology, (str, os.PathLike)) else topology
            if not isinstance(name, str):
                raise ShardingError(
                    f"the argument is a {type(topology).__name__}. Expected a spmdx.Topology, its "
                    "name or a file. Write 'gloo', or the path of a JSON file."
                )
            known = name in _C.topology_names() or not (name and Path(name).exists())
            topology = Topology.named(name) if known else Topology.load(name)
        _C.set_topology(topology._fields())
        _name = topology.name


def get_topology() -> Topology:
    """The topology that plans are made for.

    Returns:
        What :func:`set_topology` or ``SPMDX_TOPOLOGY`` said; ``"in-process"`` if neither did.

    Example:
        >>> import spmdx
        >>> spmdx.get_topology().name
        'in-process'
    """
    return Topology._of(_name, _C.topology())


def _least_seconds(call: Callable[[], object], repeats: int) -> float:
    least = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - began)
    return least


def _exchange_ns(devices: int, columns: int) -> int:
    """Least nanoseconds in which shards that are rows become shards that are columns."""
    mesh = _C.MeshHandle(list(range(devices)), [devices], ["x"])
    shape = [devices, devices * columns]
    rows = _C.to_sharding([["x"], []], mesh, shape, "calibrate")
    cut = _C.to_sharding([[], ["x"]], mesh, shape, "calibrate")
    shards = [torch.ones(1, shape[1]) for _ in range(devices)]
    fields = Topology.named("in-process")._fields()
    return int(1e9 * _least_seconds(lambda: _C.run_reshard(shards, shape, rows, cut, fields), 10))


def calibrate(path: str | os.PathLike | None = None, *, devices: int = 8) -> Topology:
    """Measure the links between the virtual devices of this process; takes about a second.

    Collectives of in-process devices are copies. The times of small exchanges among 2 and among
    ``devices`` devices give latency and time a message, a large one the time a byte; a product of
    matrices and a copy give the rates of a device.

    Args:
        path: a file to write the result to; None writes none.
        devices: how many devices exchange, at least 2.

    Returns:
        The topology, which is not in use until :func:`set_topology` is called with it.

    Raises:
        ShardingError: no path, or fewer than 2 devices.

    Example:
        >>> import spmdx
        >>> spmdx.calibrate().levels[0].picoseconds_per_byte > 0
        True
    """
    with naming("calibrate"):
        if isinstance(devices, bool) or not isinstance(devices, int) or devices < 2:
            raise ShardingError(f"devices is {devices!r}. Expected an int of at least 2. Write 8.")
        if path is not None:
            require_path(path, "links.json")
    pair = _C.time_exchange(2, 1, 2000)
    small = _C.time_exchange(devices, 1, 1000)
    columns = max(1, (1 << 20) // devices)  # shards of 4 MiB, pieces in one stretch of memory
    received = 4 * columns * (devices - 1)
    large = _exchange_ns(devices, columns)
    matrix, copied = torch.ones(512, 512), torch.ones(1 << 22)
    product = _least_seconds(lambda: matrix @ matrix, 10)
    copy = _least_seconds(copied.clone, 10)
    level = Level(
        latency_ns=pair,
        message_ns=max(0, small - pair) // (devices - 1),
        picoseconds_per_byte=max(1, 1000 * max(0, large - small) // received),
    )
    topology = Topology(
        name="in-process, measured",
        levels=(level,),
        picoseconds_per_flop=round(product * 1e12 / (2 * 512**3), 3),
        picoseconds_per_local_byte=max(1, round(copy * 1e12 / (8 << 22))),
    )
    if path is not None:
        topology.save(path)
    return topology
