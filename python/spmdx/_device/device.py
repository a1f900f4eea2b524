# SPDX-License-Identifier: Apache-2.0
"""Registers the device "spmdx" with PyTorch: its name and its module torch.spmdx."""

import atexit
import contextlib
import functools
import time
import types
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate import copies
from spmdx._base.after_import import keep_whole
from spmdx._device import (
    conversions,
    decompositions,
    memory,
    printing,
    profiling,
    storages,
    ties,
)
from spmdx.errors import ShardingError, located, naming

NAME = "spmdx"


class Stream(torch.Stream):
    """The one stream of the device; work is ordered as it was written."""

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls, device=torch.device(NAME, 0))

    def __init__(self, *args, **kwargs):
        pass

    def synchronize(self):
        _synchronize()

    def wait_stream(self, stream):
        """Nothing to do: there is one stream."""

    def wait_event(self, event):
        """Nothing to do: there is one stream."""

    def record_event(self, event=None):
        return event or Event()

    def query(self):
        return True


@functools.cache
def _one_stream():
    return Stream()  # which makes the device PyTorch's accelerator: not before it is asked for


class Event:
    """A point in the one stream; it is always behind what runs next."""

    def __init__(self, enable_timing=False, *args, **kwargs):
        self._timed, self._seconds = enable_timing, None

    def record(self, stream=None):
        """Waits for what was written before where the event is to tell times."""
        if self._timed:
            _synchronize()
            self._seconds = time.perf_counter()

    def elapsed_time(self, end_event):
        """Milliseconds between two events that were recorded with enable_timing=True."""
        times = self._seconds, end_event._seconds
        if None in times:
            raise RuntimeError(
                "elapsed_time: both events have to be recorded, and to be made with "
                "enable_timing=True."
            )
        return (times[1] - times[0]) * 1e3

    def wait(self, stream=None):
        """Nothing to do: there is one stream."""

    def query(self):
        return True

    def synchronize(self):
        _synchronize()


def _require_ours(device: Any) -> None:
    """Raises for what is not the one device; None and numbers below 0 are, as for torch.cuda."""
    place = torch.device(device) if isinstance(device, str) else device
    index = place.index or 0 if isinstance(place, torch.device) else place
    is_other = isinstance(place, torch.device) and place.type != NAME
    if is_other or not isinstance(index, int | None):
        raise ShardingError(
            f"the device is {device!r}. Expected a device of type '{NAME}'. Write '{NAME}', or "
            "leave it out."
        )
    if index is not None and index > 0:
        raise RuntimeError(
            f"there is one logical spmdx device, {NAME}:0, not {device}. Expected it. The devices "
            "of a mesh lie below it: call spmdx.mark_sharding."
        )


def _require_stream(function: str, stream: Any) -> None:
    """Raises for what is not a stream of the device; None is taken, as by torch.cuda."""
    if stream is None or isinstance(stream, torch.Stream) and stream.device.type == NAME:
        return
    raise TypeError(
        located(
            f"torch.{NAME}.{function}",
            f"the stream is {stream!r}. Expected a torch.Stream of device '{NAME}'. Write "
            f"torch.{NAME}.current_stream().",
        )
    )


def _set_stream(stream):
    _require_stream("set_stream", stream)


def _stream(stream):
    _require_stream("stream", stream)
    return contextlib.nullcontext()


def _of_device(name: str, function: Callable[[], Any]) -> Callable:
    """``function``, as torch.spmdx.<name> that takes a device as well."""

    def asked(device=None):
        with naming(f"torch.{NAME}.{name}"):
            _require_ours(device)
        return function()

    return asked


def _synchronize():
    _C.flush()
    _C.wait()


def _set_rng_state(state, device=NAME):
    with naming(f"torch.{NAME}.set_rng_state"):
        _require_ours(device)
    _C.default_generator().set_state(state)


def _set_rng_state_all(states):
    by_index = list(states)
    with naming(f"torch.{NAME}.set_rng_state_all"):
        for index in range(len(by_index)):
            _require_ours(index)
    for state in by_index:
        _set_rng_state(state)


def _manual_seed(seed):
    _C.manual_seed(int(seed) & (2**64 - 1))


def _seed():
    return _C.default_generator().seed()


def _properties():
    return types.SimpleNamespace(name=NAME, total_memory=memory.mem_get_info()[1])


# What takes a device, and would have to say something else of another one.
_OF_DEVICES: dict[str, Callable[[], Any]] = {
    "set_device": lambda: None,
    "device": contextlib.nullcontext,
    "synchronize": _synchronize,
    "get_device_name": lambda: NAME,
    "get_device_properties": _properties,
    "current_stream": lambda: _one_stream(),
    "default_stream": lambda: _one_stream(),
    "get_rng_state": lambda: _C.default_generator().get_state(),
    **memory.FUNCTIONS,
}


def _device_module():
    """What PyTorch and libraries ask of torch.<device>."""
    module: Any = types.ModuleType(f"torch.{NAME}")
    module.Stream = Stream
    module.Event = Event
    module.is_available = lambda: True
    module._initialized = True  # torch.utils.checkpoint asks before it saves random state
    module.is_initialized = lambda: True
    module.init = lambda: None
    module._lazy_init = lambda: None
    module._is_in_bad_fork = _C.in_forked_child
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_stream = _set_stream
    module.stream = _stream
    module.manual_seed = _manual_seed
    module.manual_seed_all = _manual_seed
    module.seed = _seed
    module.seed_all = _seed
    module.initial_seed = lambda: _C.default_generator().initial_seed()
    module.set_rng_state = _set_rng_state
    module.get_rng_state_all = lambda: [_C.default_generator().get_state()]
    module.set_rng_state_all = _set_rng_state_all
    module.default_generators = (_C.default_generator(),)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.is_bf16_supported = lambda including_emulation=True: True
    module.empty_cache = lambda: None
    module.ipc_collect = lambda: None
    for name, function in _OF_DEVICES.items():
        setattr(module, name, _of_device(name, function))
    return module


@functools.cache
def register():
    """Makes "spmdx" a device of PyTorch. Runs once, when spmdx is imported."""
    torch.utils.rename_privateuse1_backend(NAME)
    _C.register_device(decompositions.composes)
    decompositions.install()
    torch._register_device_module(NAME, _device_module())
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=False
    )
    conversions.install()
    storages.install()
    ties.install()
    copies.install()
    printing.install()
    profiling.install()
    # Imports sympy when an op first asks for a shape. PyTorch drops an error of that, Ctrl-C too.
    keep_whole("torch.fx.experimental.symbolic_shapes")
    # The thread that runs steps must be idle before Python tears down.
    atexit.register(_C.wait_at_exit)
