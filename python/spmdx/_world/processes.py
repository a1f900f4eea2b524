# SPDX-License-Identifier: Apache-2.0
"""The processes of the program: found, joined before the first step, and left in order."""

import atexit
import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

import spmdx._C as _C
from spmdx._base import logs
from spmdx._world import devices, gloo, hardware, natives, plugins, rendezvous
from spmdx._world.store import FAR, clone_of
from spmdx.errors import CommError, located, name_of_file, user_line


@dataclasses.dataclass
class _World:
    """This process among the others."""

    index: int
    count: int
    store: Any
    hosts_store: bool
    here: list[bool]  # which of them run on this machine
    carrier: str  # of messages with data
    generation: int = 0
    turns: dict[str, int] = dataclasses.field(default_factory=dict)


_world: _World | None = None
_failure: CommError | None = None
_lock = threading.RLock()
_END = "its program came to its end"
_FAREWELL = 2.0  # seconds that steps have to end in when the program has failed
_last_words = _END


def expected() -> tuple[int, int]:
    """The index of this process and the number of processes, joined or not."""
    if _world is not None:
        return _world.index, _world.count
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def process_index() -> int:
    """The index of this process, from 0."""
    return expected()[0]


def process_count() -> int:
    """The number of processes that run the program together."""
    return expected()[1]


def device_count() -> int:
    """The number of devices of all processes."""
    return devices.own_count() * process_count()


def device_count_for_mesh() -> int:
    """The same number, which is fixed from now on."""
    return devices.fixed_count() * process_count()


def local_count() -> int:
    """The number of processes of the program on this machine."""
    return len(local_processes())


def local_processes() -> list[int]:
    """The processes of the program on this machine, this one among them."""
    join()
    return [0] if _world is None else [i for i, here in enumerate(_world.here) if here]


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
        except CommError as error:  # there is no second try: the others will not wait for it
            _failure = error
            raise
        except KeyboardInterrupt:
            _failure = CommError(
                "the processes could not meet: KeyboardInterrupt broke it off. Expected all of "
                "them to meet. Start the program again."
            )
            raise


def _join() -> None:
    global _world
    index, count = expected()
    own = devices.own_count()
    hardware.wanted_carrier()  # what is wrong with it is said before anyone waits
    told = natives.introduction()  # likewise
    store, connection, hosts, peers = rendezvous.meet(index, count, own, told)
    carrier = hardware.carrier([peer.hardware for peer in peers])
    _world = _World(index, count, store, hosts, [peer.pid != 0 for peer in peers], carrier)
    _listen_for_the_end()
    rows = [peer[:3] for peer in peers]
    on_stream = carrier == "nccl"
    _C.join(index, own, rows, connection, rendezvous.timeout(), on_stream, _make_group)
    natives.settle(told, carrier)
    logs.world.info(
        "process %d of %d has met the others: %d devices each, messages go over %s",
        index,
        count,
        own,
        carrier,
    )


def _make_group(name: str, members: Sequence[int]) -> Any:
    """A c10d backend of some processes; each name is made once by each of its members."""
    assert _world is not None
    store = dist.PrefixStore(f"group/{name}", _C.patient(clone_of(_world.store)))
    here = members.index(_world.index)
    if name.startswith("data") and _world.carrier == "nccl":
        return _nccl_group(store, here, len(members))
    if name.startswith("data") and _world.carrier in plugins.NAMES:
        return plugins.group(_world.carrier, store, here, len(members))
    return gloo.group(store, here, len(members))


def _nccl_group(store: Any, index: int, count: int) -> Any:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = FAR
    # The waiting is watched by spmdx: NCCL's own watchdog would end the process instead of raising.
    with _environment("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"):
        group = dist.ProcessGroupNCCL(store, index, count, options)
    # All processes connect now: a first message would need all of them, and not all send one.
    group.eager_connect_single_device(torch.device(_C.shard_device()))
    return group


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def exchange(value: Any, what: str = "exchange between the processes") -> list[Any]:
    """The values that all processes pass, in their order; returns when all have called it.

    Args:
        value: of types that JSON knows.
        what: what messages call it.

    Raises:
        CommError: a process died, or did not come in time.
    """
    join()
    if _world is None:
        return [json.loads(json.dumps(value))]
    generation, turn = turn_of("exchange")
    try:
        return in_turn(f"exchange {generation}", turn, value)
    except CommError as error:
        raise CommError(located(what, str(error))) from None


def turn_of(name: str) -> tuple[int, int]:
    """How often the processes have recovered, and how often this was called with ``name`` since.

    After an error, processes may be at different turns; each generation begins with turn 0.
    """
    assert _world is not None
    generation = _C.generation()
    if _world.generation != generation:
        _world.generation, _world.turns = generation, {}
    turn = _world.turns.get(name, 0)
    _world.turns[name] = turn + 1
    return generation, turn


def tell(value: Any) -> None:
    """Take part in the next :func:`exchange` of the processes without waiting for the others."""
    join()
    generation, turn = turn_of("exchange")
    give(f"exchange {generation}", turn, value)


def decide(name: str, turn: int, word: str) -> str:
    """What decides a ``turn`` of ``name``: the word that came first."""
    assert _world is not None
    key = f"{name}/{{}}/decided"
    if turn and _world.index == 0:  # a process that comes to this turn has ended the one before
        _world.store.delete_key(key.format(turn - 1))
    return _world.store.compare_set(key.format(turn), "", word).decode()


def give(name: str, turn: int, value: Any) -> None:
    """Tell the others what this process has to say in a ``turn`` of ``name``, without waiting."""
    assert _world is not None
    _world.store.set(f"{name}/{turn}/{_world.index}", json.dumps(value))


def in_turn(name: str, turn: int, value: Any, patience: float = 0.0) -> list[Any]:
    """What every process gives for this ``turn`` of ``name``; turns are 0, 1, 2, …."""
    assert _world is not None
    give(name, turn, value)
    keys = [f"{name}/{turn}/{process}" for process in range(_world.count)]
    # A process that gives this turn has read the one before.
    stale = f"{name}/{turn - 1}/{_world.index}" if turn else ""
    what = f"{name} between the processes"
    return [json.loads(text) for text in _C.await_values(keys, what, stale, patience)]


def cause_of_recovery() -> str:
    """The exception that is being handled, for the others; empty where there is none."""
    error = sys.exc_info()[1]
    return "" if error is None else _said(error, user_line_of(error.__traceback__))


def barrier() -> None:
    """End when every process has called it."""
    exchange(None)


def _listen_for_the_end() -> None:
    """An exception that ends the program is told to the others; so is its end."""
    before = sys.excepthook

    def told(kind: type, error: BaseException, trace: Any) -> None:
        global _last_words
        _last_words = _said(error, user_line_of(trace))
        before(kind, error, trace)

    sys.excepthook = told
    atexit.register(_leave)


def _said(error: BaseException, line: str) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0] + (f" ({line})" if line else "")


def user_line_of(trace: Any) -> str:
    """File and line of the outermost frame of a traceback, which is the user's script."""
    if trace is None:
        return user_line()
    return f"{name_of_file(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _end_steps() -> None:
    """Wait for steps that run; not for long where the program has failed: others may not come."""
    global _last_words
    until = time.monotonic() + _FAREWELL
    try:
        while not _C.idle() and (_last_words == _END or time.monotonic() < until):
            time.sleep(0.005)
    except KeyboardInterrupt:
        _last_words = "KeyboardInterrupt"
    if not _C.idle():
        _C.end_world(f"the program has ended: {_last_words}")
    _C.wait_at_exit()


def _leave() -> None:
    """Leave; the process that hosts the store stays until the others have left."""
    assert _world is not None
    _end_steps()
    try:
        _C.leave(_last_words)
        until = time.monotonic() + min(30.0, rendezvous.timeout())
        others = [p for p in range(_world.count) if p != _world.index]
        may_come = _C.runs if _C.broken() else _C.lives
        while _world.hosts_store and others and time.monotonic() < until:
            others = [p for p in others if not _world.store.check([f"left/{p}"]) and may_come(p)]
            time.sleep(0.02)
    except RuntimeError:
        # The store has ended before this process: nobody is left to be told.
        return
