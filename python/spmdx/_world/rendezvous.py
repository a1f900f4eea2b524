# SPDX-License-Identifier: Apache-2.0
"""How the processes of a program meet: each puts its name into a store and reads the others'."""

import datetime
import os
import pathlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from spmdx._world import hardware
from spmdx._world.attempt import LINGER, Attempt
from spmdx._world.store import FAR, clone_of
from spmdx.errors import CommError

# What must be equal in all processes, and what users call it.
_ALIKE = {
    "devices": "SPMDX_NUM_DEVICES",
    "torch": "the version of torch",
    "kind": "SPMDX_DEVICE_TYPE",
    "carrier": "SPMDX_COMM",
    "collectives": "SPMDX_COLLECTIVES",
    "deterministic": "SPMDX_DETERMINISTIC (or torch.use_deterministic_algorithms)",
}
T = TypeVar("T")


def timeout() -> float:
    """Seconds that SPMDX_TIMEOUT allows for anything."""
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


class Peer(NamedTuple):
    """A process: what messages call it, its id (0: on another machine), its start, its hardware."""

    name: str
    pid: int
    started: int
    hardware: str


def meet(
    index: int, count: int, devices: int, settings: dict[str, Any]
) -> tuple[Any, Any, bool, list[Peer]]:
    """Two connections to the store, whether this process hosts it, and who has come.

    Args:
        index: of this process.
        count: of processes.
        devices: of this process.
        settings: more that this process tells the others.

    Raises:
        CommError: some did not come in time, or the store is gone or does not answer.
    """
    until = time.monotonic() + timeout()
    hosts = index == 0 and (
        dist.is_initialized() or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    )
    opened = _in_time(lambda: _open_store(count, hosts, until), until)
    broken_off: list[BaseException] = []

    def waits() -> bool:
        if broken_off:
            raise CommError(
                f"process {index} (pid {os.getpid()}) was broken off by "
                f"{type(broken_off[0]).__name__} while the processes met. Expected all of them to "
                "meet. Start the program again."
            )
        return time.monotonic() < until

    attempt = Attempt(opened, index, count, {**_introduction(devices), **settings})
    try:
        store, told = _in_time(lambda: attempt.enter(waits, f"{timeout():g} seconds"), until)
    except BaseException as error:
        broken_off.append(error)  # the thread that waits tells the others
        raise
    return store, _in_time(lambda: clone_of(store), until), hosts, _peers(told, index)


def _in_time(work: Callable[[], T], until: float) -> T:
    """What ``work`` returns. A thread does it, since an unresponsive store holds up its caller."""
    returned: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            returned.append(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive() and time.monotonic() < until + 2 * LINGER:
        thread.join(0.05)  # which Ctrl-C can end
    if returned:
        return returned[0]
    if errors and isinstance(errors[0], CommError):
        raise errors.pop()  # else the error keeps this frame alive, and the frame keeps the error
    what = f"has ended: {str(errors[0]).splitlines()[0]}" if errors else "does not answer"
    raise CommError(
        "the processes of the program could not meet: the store, which process 0 or the launcher "
        f"hosts, {what}. Expected RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets "
        "them, and process 0 to run. See whether it has died or is stopped, then start again."
    ) from (errors[0] if errors else None)


def _open_store(count: int, hosts: bool, until: float) -> Any:
    """The store of the default process group, or the one that torchrun's variables name."""
    if dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
    else:
        try:
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        except (KeyError, ValueError) as error:
            raise CommError(
                f"MASTER_ADDR or MASTER_PORT is wrong: {error}. Expected them beside RANK and "
                "WORLD_SIZE. Start the program with torchrun."
            ) from error
        if not hosts:
            _await_host(address, port, until)
        store = dist.TCPStore(
            address,
            port,
            count,
            hosts,
            datetime.timedelta(seconds=timeout()),
            wait_for_workers=False,  # a process that does not come is named below
            multi_tenant=True,  # the program may call init_process_group later
        )
    store.set_timeout(FAR)
    return store


def _await_host(address: str, port: int, until: float) -> None:
    while True:
        try:
            socket.create_connection((address, port), 1.0).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise CommError(
                    f"after {timeout():g} seconds nobody hosts the store at {address}:{port}, so "
                    "process 0 (or the launcher) is missing. Expected it to start. See whether "
                    "it has died, or raise SPMDX_TIMEOUT."
                ) from error
        time.sleep(0.05)


def _started() -> int:
    """When this process started, in clock ticks after boot."""
    text = pathlib.Path("/proc/self/stat").read_text(encoding="utf-8")
    return int(text[text.rindex(")") + 1 :].split()[19])


def _machine() -> str:
    """What processes that see each other's ids have in common."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return f"{socket.gethostname()}/{os.getpid()}"  # not Linux: no ids are seen
    return f"{boot.read_text(encoding='ascii').strip()}/{os.readlink('/proc/self/ns/pid')}"


def _introduction(devices: int) -> dict[str, Any]:
    """What this process tells the others about itself."""
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "started": _started() if sys.platform == "linux" else 0,
        "devices": devices,
        "torch": torch.__version__,
        "kind": hardware.kind(),
        "carrier": hardware.wanted_carrier(),
        "hardware": hardware.identity(),
    }


def _peers(all_of_them: list[dict[str, Any]], index: int) -> list[Peer]:
    """Name, process id (0: on another machine) and start of every process; checks that they fit."""
    mine = all_of_them[index]
    for other, theirs in enumerate(all_of_them):
        for key, what in _ALIKE.items():
            if theirs[key] != mine[key]:
                raise CommError(
                    f"{what} is {mine[key]} in process {index}, but {theirs[key]} in process "
                    f"{other}. Expected the same in every process. Start them all alike."
                )
    hosts = {who["host"] for who in all_of_them}
    peers = []
    for other, who in enumerate(all_of_them):
        place = f" on {who['host']}" if len(hosts) > 1 else ""
        near = sys.platform == "linux" and who["machine"] == mine["machine"]
        peers.append(
            Peer(
                f"process {other} (pid {who['pid']}{place})",
                who["pid"] if near else 0,
                who["started"],
                who["hardware"],
            )
        )
    return peers
