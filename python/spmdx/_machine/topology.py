# SPDX-License-Identifier: Apache-2.0
"""Topology: how fast the links between devices are, which is what moves are costed with."""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spmdx._C as _C
from spmdx._base.arguments import require_path
from spmdx._machine.hardware import POINTS, Hardware, are_points, as_points, hardware_of
from spmdx.errors import ShardingError, bare, naming

ALGORITHMS = "doubling", "ring"
_POINTS = "efficiency", "native_gathers", "native_sums"
_MULTIPLES = (
    "pairs of bytes and a multiple of the time of messages, as numbers",
    "((65536, 2.0), (1e6, 0.8))",
)


@dataclasses.dataclass(frozen=True)
class Level:
    """The links that join the devices of one block.

    Args:
        devices: how many consecutive device ids a block holds; 0 means what a
            :class:`spmdx.HybridMesh` calls inner, and everything on the last level.
        latency_ns: nanoseconds to start a collective.
        message_ns: nanoseconds for every message that a device waits for in turn.
        picoseconds_per_byte: time of a byte that a device receives: 500 is 2 GB/s.
        algorithm: how collectives go over these links: ``"doubling"``, as spmdx's own do; or
            ``"ring"``, as NCCL's: round rings that leave a block by the links of all of its
            devices, and up and down trees for small sums.
        efficiency: points of bytes that a device receives, and the share of the bandwidth that
            collectives of so many reach; linear between two points, constant outside of them. Of
            more bytes none may take less time. Empty: all of it.
        processor_usage: of the time of a collective, the share for which its devices do not
            compute, though nothing waits for it: 0 where links carry by themselves, 1 where the
            cores that compute have to move the bytes.
        native_gathers: how long the backend's own all-gathers take between processes, as points of
            bytes that a device receives and multiples of the time that messages take: 0.5 is half
            of it. Empty: not known.
        native_sums: the same of its all-reduces.

    Raises:
        ShardingError: points are no pairs of numbers, or processor_usage is no number;
            :class:`Topology` checks the rest.

    Example:
        >>> import spmdx
        >>> spmdx.Topology.named("gloo").levels[0].picoseconds_per_byte
        800
    """

    devices: int = 0
    latency_ns: int = 5_000
    message_ns: int = 50
    picoseconds_per_byte: int = 500
    algorithm: str = "doubling"
    efficiency: tuple[tuple[float, float], ...] = ()
    processor_usage: float = 0.0
    native_gathers: tuple[tuple[float, float], ...] = ()
    native_sums: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        with naming("Level"):
            for name in _POINTS:
                points = getattr(self, name)
                if not are_points(points):
                    expected, example = POINTS if name == "efficiency" else _MULTIPLES
                    raise ShardingError(
                        f"{name} is {points!r}. Expected {expected}. Write {example}."
                    )
                object.__setattr__(self, name, as_points(points))
            usage = self.processor_usage
            if isinstance(usage, bool) or not isinstance(usage, int | float):
                raise ShardingError(
                    f"processor_usage is {usage!r}. Expected a number from 0 to 1. Write 0."
                )
        object.__setattr__(self, "processor_usage", float(self.processor_usage))


@dataclasses.dataclass(frozen=True)
class Topology:
    """Levels of links, the innermost and fastest first. Immutable.

    Args:
        name: what to call it.
        levels: at least one; a collective takes the time of the slowest level it needs.
        hardware: what the devices are, where :func:`spmdx.set_hardware` says nothing else: a
            :class:`spmdx.Hardware`, its name, or a file.
        processors: how many of them the devices share, as processes on few cores do. A device that
            waits leaves its share to the others, so that a step is as long as all of them work in
            the mean. 0: each has its own.
        record_ns: nanoseconds of such a processor for an op of the program that another device
            runs, since each process records all of them.

    Raises:
        ShardingError: no name, no level, no hardware, a number that is negative or of another
            type, or an efficiency by which more bytes take less time.

    Example:
        >>> import spmdx
        >>> [level.devices for level in spmdx.Topology.named("infiniband").levels]
        [8, 0]

    Source: the α-β model of R. W. Hockney, Parallel Computing 20(3), 1994; rings and trees as in
    NCCL's tuning.
    """

    name: str
    levels: tuple[Level, ...]
    hardware: Hardware | str = "cpu"
    processors: int = 0
    record_ns: int = 0

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
            object.__setattr__(self, "hardware", hardware_of(self.hardware))
            self._require_levels()

    def _require_levels(self) -> None:
        for field, value in self._numbers():
            if isinstance(value, bool) or not isinstance(value, int):
                raise ShardingError(f"{field} is {value!r}. Expected an int. Write 500.")
            if not 0 <= value < 2**53:
                raise ShardingError(
                    f"{field} is {value!r}. Expected at least 0 and below 2**53. Write 500."
                )
        for level in self.levels:
            if level.algorithm not in ALGORITHMS:
                raise ShardingError(
                    f"the algorithm is {level.algorithm!r}. Expected one of {ALGORITHMS}. Write "
                    "'ring' for links that NCCL uses."
                )
        _C.check_topology(self._fields())

    def _numbers(self) -> Iterator[tuple[str, Any]]:
        yield from (("processors", self.processors), ("record_ns", self.record_ns))
        for i, level in enumerate(self.levels):
            for field, value in dataclasses.asdict(level).items():
                if field not in ("algorithm", "processor_usage", *_POINTS):
                    yield f"{field} of level {i}", value

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
        made: dict[str, Any] = {"levels": tuple(Level(**f) for f in fields["levels"])}
        if isinstance(fields.get("hardware"), dict):
            made["hardware"] = Hardware(**fields["hardware"])
        return cls(name=name, **{**fields, **made})

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
            except (
                OSError,
                ValueError,
                TypeError,
                KeyError,
                AttributeError,
                RecursionError,
            ) as error:
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
        text = json.dumps({"name": self.name, **self._fields()}, indent=2) + "\n"
        partial = Path(f"{os.fspath(path)}.{os.getpid()}.tmp")
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def _fields(self) -> dict[str, Any]:
        levels = [dataclasses.asdict(level) for level in self.levels]
        hardware = hardware_of(self.hardware)._fields()
        shared = {"processors": self.processors, "record_ns": self.record_ns}
        return {"levels": levels, "hardware": hardware, **shared}


def _are_levels(levels: Any) -> bool:
    known = isinstance(levels, tuple) and all(isinstance(level, Level) for level in levels)
    return known and len(levels) > 0
