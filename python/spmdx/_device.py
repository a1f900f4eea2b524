# SPDX-License-Identifier: Apache-2.0
"""Registers the device "spmdx" with PyTorch: its name and its module torch.spmdx."""

import atexit
import contextlib
import functools
import os
import time
import types

import torch

from spmdx import (
    _C,
    _conversions,
    _copies,
    _decompositions,
    _place,
    _printing,
    _profiling,
    _storages,
    _ties,
)

NAME = "spmdx"


class Stream(torch.Stream):
    """The one stream of the device; work is ordered as it was written."""

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls, device=torch.device(NAME, 0))

    def __init__(self, *args, **kwargs):
        pass

    def synchronize(self):
        _C.wait()

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
        _C.wait()


def _set_device(device):
    if torch._utils._get_device_index(device, optional=True) > 0:
        raise RuntimeError(
            f"there is one logical spmdx device, {NAME}:0, not {device}. Expected it. The devices "
            "of a mesh lie below it: call spmdx.mark_sharding."
        )


def _as_current(device):
    _set_device(device)
    return contextlib.nullcontext()


def _synchronize(device=None):
    _C.flush()
    _C.wait()


def _get_rng_state(device=NAME):
    return _C.default_generator().get_state()


def _set_rng_state(state, device=NAME):
    _C.default_generator().set_state(state)


def _manual_seed(seed):
    _C.manual_seed(int(seed) & (2**64 - 1))


def _seed():
    return _C.default_generator().seed()


def _memory(key):
    """Of the process, or of the GPU that its devices share."""

    def asked(device=None):
        from spmdx.runtime import memory_info

        return memory_info()[key]

    return asked


def _mem_get_info(device=None):
    """Bytes that are free, and all of them."""
    if _place.kind() == "cuda":
        return torch.cuda.mem_get_info()
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _device_module():
    """What PyTorch and libraries ask of torch.<device>."""
    module = types.ModuleType(f"torch.{NAME}")
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
    module.set_device = _set_device
    module.get_device_name = lambda device=None: NAME
    module.device = _as_current
    module.synchronize = _synchronize
    module.current_stream = lambda device=None: _one_stream()
    module.default_stream = lambda device=None: _one_stream()
    module.set_stream = lambda stream: None
    module.stream = lambda stream: contextlib.nullcontext()
    module.manual_seed = _manual_seed
    module.manual_seed_all = _manual_seed
    module.seed = _seed
    module.seed_all = _seed
    module.initial_seed = lambda: _C.default_generator().initial_seed()
    module.get_rng_state = _get_rng_state
    module.set_rng_state = _set_rng_state
    module.get_rng_state_all = lambda: [_get_rng_state()]
    module.set_rng_state_all = lambda states: _set_rng_state(states[0])
    module.default_generators = (_C.default_generator(),)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.is_bf16_supported = lambda including_emulation=True: True
    module.mem_get_info = _mem_get_info
    module.empty_cache = lambda: None
    module.memory_allocated = module.memory_reserved = _memory("bytes_used")
    module.max_memory_allocated = module.max_memory_reserved = _memory("peak_bytes_used")
    module.reset_peak_memory_stats = lambda device=None: None
    module.ipc_collect = lambda: None
    return module


def register():
    """Makes "spmdx" a device of PyTorch. Runs once, when spmdx is imported."""
    torch.utils.rename_privateuse1_backend(NAME)
    _C.register_device(_decompositions.composes)
    _decompositions.install()
    torch._register_device_module(NAME, _device_module())
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=False
    )
    _conversions.install()
    _storages.install()
    _ties.install()
    _copies.install()
    _printing.install()
    _profiling.install()
    # The thread that runs steps must be idle before Python tears down.
    atexit.register(_C.wait_at_exit)


register()
