# SPDX-License-Identifier: Apache-2.0
"""Hardware: what a device can do by itself, which is what ops are costed with."""

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import spmdx._C as _C
from spmdx._base.sizes import in_bytes
from spmdx.errors import ShardingError, bare, naming

_NEEDED = ("name", "memory_bytes_per_second", "flops_per_second")
_PROFILES = Path(__file__).parent / "profiles"


@dataclasses.dataclass(frozen=True)
class Hardware:
    """What a device can do: an op takes the longer of computing and of reading and writing memory.

    Args:
        name: what to call it.
        flops_per_second: by dtype, as ``{"f32": 67e12, "bf16": 989e12}``, the peak rate of matrix
            products, in operations a second; a multiply-add is two. A dtype that is not there has
            the slowest of these rates, and what is no product that of f32.
        memory_bytes_per_second: the peak rate of a device's own memory.
        memory_bytes: how much of it there is; 0: not told.
        product_efficiency: points ``(operations, share)``: the share of the peak that a product of
            so many operations reaches; linear between points, constant outside. Empty: all of it.
        memory_efficiency: the same by the bytes that an op reads and writes.
        launch_ns: nanoseconds to start an op.
        packing_bytes_per_second: the rate at which products lay out what they read and write, as
            libraries for processors do, before and behind computing; 0: computing hides it.
        host_bytes_per_second: the rate between a device's own memory and that of its host, one way.
        sources: by field, where its figure is from.

    Raises:
        ShardingError: a field of another type, or a figure of the wrong unit or sign.

    Example:
        >>> import spmdx
        >>> spmdx.Hardware.named("a100-80").flops_per_second["bf16"]
        312000000000000.0

    Source: the roofline model of S. Williams et al., CACM 52(4), 2009; shares of the peak by size
    as in M. Isaev et al., Calculon, SC 2023.
    """

    name: str
    flops_per_second: Mapping[str, float]
    memory_bytes_per_second: float
    memory_bytes: int = 0
    product_efficiency: tuple[tuple[float, float], ...] = ()
    memory_efficiency: tuple[tuple[float, float], ...] = ()
    launch_ns: int = 0
    packing_bytes_per_second: float = 0
    host_bytes_per_second: float = 5e9
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        with naming("Hardware"):
            for name, is_one, expected, example in _FIELDS:
                value = getattr(self, name)
                if not is_one(value):
                    raise ShardingError(
                        f"{name} is {value!r}. Expected {expected}. Write {example}."
                    )
            for name in ("product_efficiency", "memory_efficiency"):
                object.__setattr__(self, name, as_points(getattr(self, name)))
            rates = {dtype: float(rate) for dtype, rate in self.flops_per_second.items()}
            object.__setattr__(self, "flops_per_second", rates)
            _C.check_hardware(self._fields())

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes, self.memory_bytes_per_second))

    @classmethod
    def named(cls, name: str) -> "Hardware":
        """A profile that comes with spmdx, whose ``sources`` say where each figure is from.

        Args:
            name: ``"cpu"``, ``"gpu"`` (any, by orders of magnitude), ``"v100-32"``, ``"a100-80"``,
                ``"h100-80"``, ``"h200-141"``, ``"tpu-v3"``, ``"tpu-v4"``, ``"tpu-v5e"``,
                ``"tpu-v5p"``, ``"ascend-910"``, ``"ascend-910b"`` or ``"stratix-10"``.

        Returns:
            The profile.

        Raises:
            ShardingError: another name.

        Example:
            >>> import spmdx
            >>> spmdx.Hardware.named("tpu-v5e").memory_bytes // 2**30
            16
        """
        with naming("Hardware.named"):
            if name not in hardware_names():
                raise ShardingError(
                    f"no hardware is called {name!r}. Expected one of "
                    f"{', '.join(map(repr, hardware_names()))}. Write one of these names, or load "
                    "a file."
                )
        return cls.load(_PROFILES / f"{name}.toml")

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Hardware":
        """The profile that a TOML file holds: the fields of this class, by name.

        Args:
            path: a file; ``flops_per_second`` and ``sources`` are tables in it.

        Returns:
            The profile.

        Raises:
            ShardingError: no such file, no TOML, a key that is no field, or a figure of the wrong
                unit or sign.

        Example:
            >>> import spmdx, tempfile, pathlib
            >>> path = pathlib.Path(tempfile.mkdtemp(), "mine.toml")
            >>> text = 'name = "mine"\\nmemory_bytes_per_second = 4e11\\n'
            >>> _ = path.write_text(text + '[flops_per_second]\\nf32 = 2e12\\n')
            >>> spmdx.Hardware.load(path).flops_per_second
            {'f32': 2000000000000.0}
        """
        with naming("Hardware.load"):
            try:
                fields = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
                known = [field.name for field in dataclasses.fields(cls)]
                unknown, missing = fields.keys() - set(known), set(_NEEDED) - fields.keys()
                if unknown:
                    raise ShardingError(
                        f"found {min(unknown)!r}. Expected one of {', '.join(known)}."
                    )
                if missing:
                    raise ShardingError(
                        f"it has no {min(missing)}. Expected {', '.join(_NEEDED)} at least."
                    )
                return cls(**fields)
            except ShardingError as error:
                raise ShardingError(f"{path}: {bare(error)}") from None
            except (OSError, ValueError, TypeError) as error:
                raise ShardingError(
                    f"{path or repr(path)} is no hardware: {type(error).__name__}: {error}. "
                    "Expected a TOML file with name, memory_bytes_per_second and a table "
                    "flops_per_second. Write one as docs/hardware.md shows."
                ) from None

    def _fields(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del fields["sources"]
        return fields

    def __str__(self) -> str:
        rates = ", ".join(f"{d} {rate / 1e12:g}" for d, rate in self.flops_per_second.items())
        memory = in_bytes(self.memory_bytes) + " at " if self.memory_bytes else ""
        return (
            f"{self.name}: {rates} TFLOP/s, memory {memory}"
            f"{self.memory_bytes_per_second / 1e9:g} GB/s"
        )


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return isinstance(value, float) or abs(value) < 2**1000  # as a float it would not fit


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def as_points(value: Any) -> tuple[tuple[float, float], ...]:
    """Those of a file are lists, and may be whole numbers. REQUIRES: :func:`are_points`."""
    return tuple((float(size), float(share)) for size, share in value)


def are_points(value: Any) -> bool:
    """Whether these are pairs of numbers: sizes, and the shares of a rate that they reach."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(point, (list, tuple)) and len(point) == 2 and all(map(_is_number, point))
        for point in value
    )


def _are_rates(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(dtype, str) and _is_number(rate) for dtype, rate in value.items()
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(text, str) for text in [*value.keys(), *value.values()]
    )


POINTS = "pairs of a size and a share of the peak, as numbers", "((1e9, 0.6), (16e9, 0.9))"
_FIELDS = (
    ("name", _is_text, "a printable string", "'mine'"),
    ("flops_per_second", _are_rates, "operations a second, by dtype", "{'f32': 67e12}"),
    ("memory_bytes_per_second", _is_number, "a number of bytes a second", "900e9 for 900 GB/s"),
    ("memory_bytes", _is_whole, "a whole number of bytes", "32 * 2**30 for 32 GiB"),
    ("product_efficiency", are_points, *POINTS),
    ("memory_efficiency", are_points, *POINTS),
    ("launch_ns", _is_whole, "a whole number of nanoseconds", "2000"),
    ("packing_bytes_per_second", _is_number, "a number of bytes a second", "15e9 for 15 GB/s"),
    ("host_bytes_per_second", _is_number, "a number of bytes a second", "32e9 for 32 GB/s"),
    ("sources", _are_texts, "a text for each field", "{'launch_ns': 'measured'}"),
)


def hardware_names() -> list[str]:
    """The profiles that come with spmdx.

    Returns:
        Names that :func:`set_hardware` takes, sorted.

    Example:
        >>> import spmdx
        >>> "h100-80" in spmdx.hardware.hardware_names()
        True
    """
    return sorted(path.stem for path in _PROFILES.glob("*.toml"))


def hardware_of(told: "Hardware | str | os.PathLike") -> Hardware:
    """Hardware, or what has that name, or what a file holds."""
    if isinstance(told, Hardware):
        return told
    if not isinstance(told, (str, os.PathLike)):
        raise ShardingError(
            f"the hardware is a {type(told).__name__}. Expected a spmdx.Hardware, its name or a "
            "file. Write 'h100-80', or the path of a TOML file."
        )
    name = os.fspath(told)
    is_file = name not in hardware_names() and name and Path(name).exists()
    return Hardware.load(name) if is_file else Hardware.named(name)
