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
    global _world
    with _lock:
        if _world is not None or expected()[1] == 1:
            return
        from spmdx.runtime import addressable_runtime_device_count

        devices = addressable_runtime_device_count()
        index, count, store, hosts = _meet()
        rows = _introduce(store, index, count, devices)
        _world = _World(index, count, store, hosts, [row[1] != 0 for row in rows])
        _C.join(index, devices, rows, _clone(store), _timeout(), _make_group)
        _listen_for_the_end()


def _meet() -> tuple[int, int, Any, bool]:
    """Index, count and store of torch.distributed; whether this process hosts the store."""
    try:
        if dist.is_initialized():
            store = dist.distributed_c10d._get_default_store()
            index, count = dist.get_rank(), dist.get_world_size()
        else:
            limit = datetime.timedelta(seconds=_timeout())
            store, index, count = next(iter(dist.rendezvous("env://", timeout=limit)))
    except (ValueError, RuntimeError) as error:
        raise CommError(
            f"the processes of the program could not meet: {error}. Expected RANK, WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT as torchrun sets them, and all processes to start. "
            "Start the program with torchrun."
        ) from error
    store.set_timeout(FAR)
    hosted_elsewhere = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return index, count, dist.PrefixStore("spmdx", store), index == 0 and not hosted_elsewhere


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
    store.set(f"who/{index}", json.dumps(mine))
    all_of_them = [json.loads(text) for text in _wait_for(store, "who", count)]
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


def _wait_for(store: Any, name: str, count: int) -> list[bytes]:
    """The values of ``name/0`` to ``name/count-1``, when all are there; nobody is watched yet."""
    keys = [f"{name}/{process}" for process in range(count)]
    until = time.monotonic() + _timeout()
    while not store.check(keys):
        if time.monotonic() > until:
            missing = [str(p) for p, key in enumerate(keys) if not store.check([key])]
            raise CommError(
                f"after {_timeout():g} seconds {len(missing)} of {count} processes are missing: "
                f"{', '.join(missing)}. Expected all of them to import spmdx and use it. "
                "See whether they died, or raise SPMDX_TIMEOUT."
            )
        time.sleep(0.02)
    return [store.get(key) for key in keys]


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
    name = f"exchange/{_world.exchanges}"
    _world.exchanges += 1
    _world.store.set(f"{name}/{_world.index}", json.dumps(value))
    keys = [f"{name}/{process}" for process in range(_world.count)]
    _C.await_keys(keys)
    return [json.loads(_world.store.get(key)) for key in keys]


def barrier() -> None:
    """End when every process has called it."""
    exchange(None)


def store() -> Any:
    """A ``torch.distributed.Store`` that all processes share; None where there is one process."""
    join()
    return None if _world is None else dist.PrefixStore("user", _world.store)


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
        while _world.hosts_store and others and time.monotonic() < until:
            others = [p for p in others if not _world.store.check([f"left/{p}"]) and _C.lives(p)]
            time.sleep(0.02)
    except RuntimeError:
        # The store has ended before this process: nobody is left to be told.
        return


_C.set_before_first_use(join)
