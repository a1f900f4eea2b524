# SPDX-License-Identifier: Apache-2.0
"""The processes of the program: found, joined before the first step, and left in order."""

import atexit
import dataclasses
import datetime
import json
import os
import pathlib
import socket
import sys
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from spmdx import _C
from spmdx.errors import CommError, user_line

FAR = datetime.timedelta(days=7)  # spmdx limits every wait itself, by SPMDX_TIMEOUT


@dataclasses.dataclass
class _World:
    """This process among the others."""

    index: int
    count: int
    store: Any
    hosts_store: bool
    here: list[bool]  # which of them run on this machine
    exchanges: int = 0


_world: _World | None = None
_failure: CommError | None = None
_lock = threading.RLock()
_last_words = "its program came to its end"


def _timeout() -> float:
    text = os.environ.get("SPMDX_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 10**7:
        raise ValueError(
            f"SPMDX_TIMEOUT is {text!r}. Expected a number of seconds above 0. "
            "Write SPMDX_TIMEOUT=600, or unset it."
        )
    return seconds


def expected() -> tuple[int, int]:
    """The index of this process and the number of processes, joined or not."""
    if _world is not None:
        return _world.index, _world.count
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def local_count() -> int:
    """The number of processes of the program on this machine."""
    join()
    return 1 if _world is None else sum(_world.here)


def join() -> None:
    """Meet the other processes, if there are any; the first call does it."""
    global _failure
    with _lock:
        if _failure is not None:
            raise CommError(str(_failure))
        if _world is not None or expected()[1] == 1:
            return
        try:
            _join()
        except CommError as error:  # the others will not wait for a second try
            _failure = error
            raise


def _join() -> None:
    global _world
    from spmdx.runtime import addressable_runtime_device_count

    devices = addressable_runtime_device_count()
    index, count, store, hosts = _meet()
    rows = _introduce(store, index, count, devices)
    _world = _World(index, count, store, hosts, [row[1] != 0 for row in rows])
    _listen_for_the_end()
    _C.join(index, devices, rows, _clone(store), _timeout(), _make_group)


def _meet() -> tuple[int, int, Any, bool]:
    """Index, count and store of torch.distributed; whether this process hosts the store."""
    try:
        if dist.is_initialized():
            store = dist.distributed_c10d._get_default_store()
            index, count = dist.get_rank(), dist.get_world_size()
            hosts = index == 0
        else:
            index, count = expected()
            hosts = index == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            if not hosts:
                _await_host(address, port)
            store = dist.TCPStore(
                address,
                port,
                count,
                hosts,
                datetime.timedelta(seconds=_timeout()),
                wait_for_workers=False,  # who does not come is named below
                multi_tenant=True,  # the program may call init_process_group later
            )
    except (KeyError, ValueError, RuntimeError) as error:
        raise CommError(
            f"the processes of the program could not meet: {str(error).splitlines()[0]}. Expected "
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them, and process 0 "
            "(or torchrun) to host the store there. See whether process 0 has started, or start "
            "the program with torchrun."
        ) from error
    store.set_timeout(FAR)
    return index, count, dist.PrefixStore("spmdx", store), hosts


def _await_host(address: str, port: int) -> None:
    """Until somebody listens there; a store would not let itself be interrupted meanwhile."""
    until = time.monotonic() + _timeout()
    while True:
        try:
            socket.create_connection((address, port), 1.0).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise RuntimeError(f"nobody hosts the store at {address}:{port}") from error
        time.sleep(0.05)


def _clone(store: Any) -> Any:
    """A connection of its own, so that nobody waits for another's answer."""
    return store.clone() if hasattr(store, "clone") else store


def _started() -> int:
    """When this process started, in clock ticks after boot."""
    text = pathlib.Path("/proc/self/stat").read_text(encoding="utf-8")
    return int(text[text.rindex(")") + 1 :].split()[19])


def _machine() -> str:
    """What processes that see each other's ids have in common."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return f"{socket.gethostname()}/{os.getpid()}"  # not Linux: nobody sees anybody
    return f"{boot.read_text(encoding='ascii').strip()}/{os.readlink('/proc/self/ns/pid')}"


def _introduce(store: Any, index: int, count: int, devices: int) -> list[tuple[str, int, int]]:
    """Name, process id (0: on another machine) and start of every process; checks that they fit."""
    on_linux = sys.platform == "linux"
    mine = {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "started": _started() if on_linux else 0,
        "devices": devices,
        "torch": torch.__version__,
    }
    keys = [f"who/{process}" for process in range(count)]
    store.set(keys[index], json.dumps(mine))
    all_of_them = [json.loads(text) for text in _gathered(store, keys)]
    for other, theirs in enumerate(all_of_them):
        for key, what in (("devices", "SPMDX_NUM_DEVICES"), ("torch", "the version of torch")):
            if theirs[key] != mine[key]:
                raise CommError(
                    f"{what} is {mine[key]} in process {index}, but {theirs[key]} in process "
                    f"{other}. Expected the same in every process. Start them all alike."
                )
    hosts = {who["host"] for who in all_of_them}
    rows = []
    for other, who in enumerate(all_of_them):
        place = f" on {who['host']}" if len(hosts) > 1 else ""
        near = on_linux and who["machine"] == mine["machine"]
        rows.append(
            (
                f"process {other} (pid {who['pid']}{place})",
                who["pid"] if near else 0,
                who["started"],
            )
        )
    return rows


def _gathered(store: Any, keys: list[str]) -> list[bytes]:
    """The values of ``keys``, one of each process, when all are there; nobody is watched yet.

    A thread asks, since a store that does not answer holds up whoever asked.
    """
    found: dict[str, bytes] = {}
    errors: list[RuntimeError] = []

    def ask() -> None:
        try:
            while len(found) < len(keys) and time.monotonic() < until:
                for key in keys:
                    if key not in found and store.check([key]):
                        found[key] = store.get(key)
                time.sleep(0.02)
        except RuntimeError as error:
            errors.append(error)

    until = time.monotonic() + _timeout()
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    while thread.is_alive() and time.monotonic() < until + 1:
        thread.join(0.1)  # which Ctrl-C can end
    if errors:
        raise CommError(
            "process 0, or the launcher, which hosts the store, has ended before all processes "
            f"have met: {str(errors[0]).splitlines()[0]}. Expected it to live as long as the "
            "others. See what ended it, and start the program again."
        ) from errors[0]
    if len(found) < len(keys):
        missing = [str(process) for process, key in enumerate(keys) if key not in found]
        raise CommError(
            f"after {_timeout():g} seconds {len(missing)} of {len(keys)} processes are missing: "
            f"{', '.join(missing)}. Expected all of them to import spmdx and use it. "
            "See whether they died or are stopped, or raise SPMDX_TIMEOUT."
        )
    return [found[key] for key in keys]


def _make_group(name: str) -> Any:
    """A c10d backend of all processes; each name is made once by each of them."""
    assert _world is not None
    store = dist.PrefixStore(f"group/{name}", _clone(_world.store))
    return dist.ProcessGroupGloo(store, _world.index, _world.count, FAR)


def exchange(value: Any) -> list[Any]:
    """What every process calls this with, in order of the processes; ends when all have called it.

    Args:
        value: of types that JSON knows.

    Raises:
        CommError: a process died, or did not come in time.
    """
    join()
    if _world is None:
        return [json.loads(json.dumps(value))]
    _world.exchanges += 1
    return in_turn("exchange", _world.exchanges - 1, value)


def in_turn(name: str, turn: int, value: Any, patience: float = 0.0) -> list[Any]:
    """What every process gives for this ``turn`` of ``name``; turns are 0, 1, 2, …."""
    assert _world is not None
    _world.store.set(f"{name}/{turn}/{_world.index}", json.dumps(value))
    keys = [f"{name}/{turn}/{process}" for process in range(_world.count)]
    # Who gives this turn has read the one before.
    stale = f"{name}/{turn - 1}/{_world.index}" if turn else ""
    what = f"{name} between the processes"
    return [json.loads(text) for text in _C.await_values(keys, what, stale, patience)]


def barrier() -> None:
    """End when every process has called it."""
    exchange(None)


def _listen_for_the_end() -> None:
    """An exception that ends the program is told to the others; so is its end."""
    before = sys.excepthook

    def told(kind: type, error: BaseException, trace: Any) -> None:
        global _last_words
        line = user_line_of(trace)
        _last_words = f"{kind.__name__}: {error}".split("\n")[0] + (f" ({line})" if line else "")
        before(kind, error, trace)

    sys.excepthook = told
    atexit.register(_leave)


def user_line_of(trace: Any) -> str:
    """File and line of the outermost frame of a traceback, which is the user's script."""
    if trace is None:
        return user_line()
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _leave() -> None:
    """Say goodbye; the process that hosts the store stays until the others have said it."""
    assert _world is not None
    _C.wait_at_exit()
    try:
        _C.leave(_last_words)
        until = time.monotonic() + min(30.0, _timeout())
        others = [p for p in range(_world.count) if p != _world.index]
        may_come = _C.runs if _C.broken() else _C.lives
        while _world.hosts_store and others and time.monotonic() < until:
            others = [p for p in others if not _world.store.check([f"left/{p}"]) and may_come(p)]
            time.sleep(0.02)
    except RuntimeError:
        # The store has ended before this process: nobody is left to be told.
        return


_C.set_before_first_use(join)
