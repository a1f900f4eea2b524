# SPDX-License-Identifier: Apache-2.0
"""The kinds of the devices of all processes."""

from collections.abc import Mapping, Sequence

import spmdx._C as _C
from spmdx._compiling import in_force, of_devices
from spmdx._kinds.kind import Kind, Told, kind_named
from spmdx._machine.hardware import Hardware, hardware_names
from spmdx._world import devices, processes
from spmdx.errors import ShardingError, naming, warn

_of_device: tuple[Kind, ...] = ()
_axis = ""


def set_devices(
    kinds: Sequence[str | Hardware],
    *,
    hardware: Mapping[str, Told] | None = None,
    check: bool = True,
    compile_now: bool = False,
) -> None:
    """Say how many devices there are, and of which kind each is: who compiles what it runs.

    Sharding means what it always does; :func:`spmdx.auto.place` has the parts of a step run where
    they end first, which a call of this function ends. Of several processes all call it alike.

    Args:
        kinds: one for each device of all processes: ``"cpu"``, with PyTorch's kernels; a compiler
            and the machine that runs its kernels, as ``"xla:cpu"``, ``"onnxruntime:cpu"``,
            ``"hls:sim"``, an FPGA that is simulated, or ``"xla:tpu"``, which nobody has run
            (``PJRT_DEVICE=TPU``). ``"cpu@v100-32"`` is planned for as that profile of hardware, and
            a :class:`spmdx.Hardware`, as :func:`measure_devices` gives them, as ``"cpu"`` of it. Of
            values that several devices hold alike, the first of these computes them. Empty: what
            :func:`set_device_count` says again, all of one kind.
        hardware: what a kind can do, by its name: a :class:`spmdx.Hardware`, the name of one or a
            file. Others have what :func:`spmdx.get_hardware` gives now, ``"hls:sim"`` that of
            ``"stratix-10"``, and ``"xla:tpu"`` that of the chip.
        check: as of :func:`spmdx.set_compiler`.
        compile_now: as of :func:`spmdx.set_compiler`.

    Raises:
        ImportError: a TPU is named, and libtpu is not installed.
        ShardingError: a kind that is none, hardware of a kind that no device has, meshes exist for
            another number of devices, compilers are named and the program has several processes, or
            these name other kinds, or other numbers of devices, or there is no TPU.
        CommError: another process did not call it, or died.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.set_devices(["cpu"] * 7 + ["xla:cpu"])
        >>> spmdx.runtime.get_devices()[-1]
        'xla:cpu'
        >>> spmdx.runtime.set_devices([])
    """
    global _of_device, _axis
    with naming("set_devices"):
        found = _kinds_of(kinds, {} if hardware is None else hardware)
        if found:
            devices.choose_count(_of_a_process(found))
        _of_device, _axis = (), ""  # if what follows is interrupted, devices are alike
        _tell()
        in_force.set_own_compilers(
            [kind.compiler for kind in found], check=check, compile_now=compile_now
        )
        _of_device = found
        _tell()


def get_devices() -> list[str]:
    """The kind of each device, as :func:`set_devices` said.

    Returns:
        names, by the device's number; ``"cpu"`` or ``"cuda"`` of all where nothing was said.

    Example:
        >>> import spmdx
        >>> spmdx.runtime.get_devices()[0]
        'cpu'
    """
    if _of_device:
        return [kind.name for kind in _of_device]
    return [_C.shard_device().split(":")[0]] * processes.device_count()


def kinds() -> tuple[Kind, ...]:
    """By device; none where :func:`set_devices` said nothing."""
    return _of_device


def place_along(axis: str) -> None:
    """Place steps of meshes with this axis by time from now on; empty: none."""
    global _axis
    before, _axis = _axis, axis
    try:
        _tell()
    except BaseException:  # a warning that a filter raises, or Ctrl-C
        _axis = before
        raise


def _of_a_process(kinds: tuple[Kind, ...]) -> int:
    """How many devices each process has; all processes have to say the same."""
    count = processes.process_count()
    if len(kinds) % count:
        raise ShardingError(
            f"there are kinds of {len(kinds)} devices for {count} processes. Expected a kind for "
            "each device of all of them, as many of each process. Name as many devices of each."
        )
    own = [[kind.name, kind.own_memory, kind.hardware._fields()] for kind in kinds]
    first, *others = processes.exchange(own, "set_devices")
    if any(told != first for told in others):
        raise ShardingError(
            "processes say different things of the kinds of devices. Expected the same list with "
            "the same hardware in all of them. Let one measure and tell the others, or call "
            "spmdx.runtime.measure_devices, which does."
        )
    return len(kinds) // count


def _kinds_of(told: Sequence[str | Hardware], profiles: Mapping[str, Told]) -> tuple[Kind, ...]:
    listed = isinstance(told, list | tuple)
    if not listed or not all(isinstance(kind, str | Hardware) for kind in told):
        raise ShardingError(
            f"the kinds are {told!r}. Expected a list of names or of profiles of hardware, one for "
            "each device. Write ['cpu', 'xla:cpu']."
        )
    if not isinstance(profiles, Mapping):
        raise ShardingError(
            f"the hardware is a {type(profiles).__name__}. Expected a dict from names of kinds to "
            "profiles. Write {'cpu@mine': spmdx.Hardware(...)}."
        )
    names, profiles = _named(told, profiles)
    for name in profiles:
        if name not in names:
            raise ShardingError(
                f"hardware is told of {name!r}, which no device is. Expected one of "
                f"{', '.join(dict.fromkeys(names)) or 'no kinds'}. Name a device's kind."
            )
    known: dict[str, Kind] = {}
    for name in names:
        if name not in known:
            known[name] = kind_named(name, profiles)
    return tuple(known[name] for name in names)


def _named(
    told: Sequence[str | Hardware], profiles: Mapping[str, Told]
) -> tuple[list[str], dict[str, Told]]:
    """Names of all kinds, and what is told of these."""
    names, found = [], dict(profiles)
    for kind in told:
        if isinstance(kind, str):
            names.append(kind)
            continue
        names.append(f"cpu@{kind.name}")
        if found.setdefault(names[-1], kind) != kind:
            raise ShardingError(
                f"two profiles of hardware are called {kind.name!r}. Expected another name for "
                "each that is another. Write dataclasses.replace(profile, name='...')."
            )
        if names[-1] in told and names[-1] not in profiles and _is_another_built_in(kind):
            raise ShardingError(
                f"{names[-1]!r} means two profiles of hardware: one of yours is called "
                f"{kind.name!r}, as one of spmdx's is. Expected another name for yours. Write "
                "dataclasses.replace(profile, name='...')."
            )
    return names, found


def _is_another_built_in(profile: Hardware) -> bool:
    return profile.name in hardware_names() and Hardware.named(profile.name) != profile


def _tell() -> None:
    """Plans are made for these, by what their compilers take."""
    distinct = list(dict.fromkeys(_of_device))
    rows = []
    for kind in distinct:
        ops, dtypes = _taken_by(kind) if _axis else (set(), [])
        rows.append(
            {
                "name": kind.name,
                "hardware": kind.hardware._fields(),
                "own_memory": kind.own_memory,
                "ops": ops,
                "dtypes": dtypes,
            }
        )
    _C.set_device_kinds(rows, [distinct.index(kind) for kind in _of_device], _axis)


def _taken_by(kind: Kind) -> tuple[set[str], list[str]]:
    """Ops and dtypes; empty: all."""
    if kind.compiler is None:
        return set(), []
    compiler = of_devices.own()[kind.compiler]
    compiler.await_ready()
    if not compiler.ops:
        warn(
            f"nothing is placed on devices of kind {kind.name!r}: its compiler takes no op"
            + (f": {compiler.failure}" if compiler.failure else "")
            + ". See spmdx.compilers.left()."
        )
    return set(compiler.ops) or {"nothing"}, list(compiler.compiler.dtypes)
