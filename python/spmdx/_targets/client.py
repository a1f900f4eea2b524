# SPDX-License-Identifier: Apache-2.0
"""XLA's client in this process: programs compiled and run, on tensors that it shares or copies."""

import dataclasses
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import dlpack

from spmdx._segments.operands import ready

Runs = Callable[[list[torch.Tensor]], list[torch.Tensor]]
# Rounding as it is written: no bfloat16 that is kept in more bits, no reordered sums, no lost NaN.
_EXACT = {"xla_allow_excess_precision": False}
_EXACT_ON_CPU = {"xla_cpu_enable_fast_math": False, "xla_cpu_enable_fast_min_max": False}


@functools.cache
def library() -> Any:
    """jaxlib's module, which says nothing on stderr of its devices.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        from jaxlib import xla_client
    except ImportError as error:
        raise ImportError(f"{error}. Install it: pip install 'spmdx[xla]'") from error
    if importlib.util.find_spec("jax") is None:
        # It would be looked for in all of sys.path whenever an array is made: 0.1 ms each.
        sys.modules.setdefault("jax._src.sharding_impls", None)  # type: ignore[arg-type]
    return xla_client


@dataclasses.dataclass(frozen=True)
class Client:
    """A client of jaxlib's, and the one device of it that is used.

    Attributes:
        native: jaxlib's.
        device: of it.
        copies: the device has memory of its own, or is treated as if it had.
    """

    native: Any
    device: Any
    copies: bool = False

    def compiled(self, text: str) -> bytes:
        """A program of a module of StableHLO, which :meth:`loaded` takes.

        Raises:
            RuntimeError: XLA does not take it.
        """
        return self._executable(text).serialize()

    def loaded(self, program: bytes) -> Runs:
        """A function of tensors, for any thread; its results are new ones.

        Raises:
            RuntimeError: it was damaged, or is for another version of XLA.
        """
        devices = library().DeviceList((self.device,))
        return self._runs(self.native.deserialize_executable(program, devices, None))

    def compiled_and_loaded(self, text: str) -> Runs:
        """Both at once, of a module of StableHLO, without what could be kept on disk.

        Raises:
            RuntimeError: XLA does not take it.
        """
        return self._runs(self._executable(text))

    def options(self) -> Any:
        """What programs are compiled with."""
        options = library().CompileOptions()
        exact = _EXACT | (_EXACT_ON_CPU if self.native.platform == "cpu" else {})
        options.env_option_overrides = list(exact.items())
        return options

    def _executable(self, text: str) -> Any:
        devices = library().DeviceList((self.device,))
        return self.native.compile_and_load(text, devices, self.options())

    def _runs(self, executable: Any) -> Runs:
        """It computes in the thread that calls it, without the GIL, with help of the client's."""
        xla = library()._xla
        to_device = self._copied if self.copies else self._shared
        to_host = _copied_back if self.copies else _shared_back

        def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            xla.collect_garbage()
            arrays = [to_device(ready(tensor)) for tensor in tensors]
            results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
            return to_host([result for (result,) in results])

        return run

    def _shared(self, tensor: torch.Tensor) -> Any:
        xla = library()._xla
        return xla.dlpack_managed_tensor_to_buffer(dlpack.to_dlpack(tensor), self.device, None)

    @functools.cached_property
    def _whole(self) -> Any:
        """On the device, and not cut."""
        xla_client = library()
        devices = xla_client.DeviceList((self.device,))
        return xla_client.GSPMDSharding(devices, xla_client.HloSharding.replicate())

    def _copied(self, tensor: torch.Tensor) -> Any:
        xla_client = library()
        array = _numpy(tensor)
        return xla_client._xla.batched_device_put(
            _Value(array.shape, array.dtype),
            self._whole,
            [array],
            [self.device],
            force_copy=True,
            host_buffer_semantics=xla_client.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL,
            enable_x64=True,  # or f64 and i64 would have 32 bits
        )


@dataclasses.dataclass(frozen=True)
class _Value:
    """What jaxlib asks of a value that is put on a device."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool = False


def _numpy(tensor: torch.Tensor) -> Any:
    """The same memory, for NumPy, which knows bfloat16 by another package."""
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _shared_back(results: list[Any]) -> list[torch.Tensor]:
    xla = library()._xla
    return [
        dlpack.from_dlpack(xla.buffer_to_dlpack_managed_tensor(result, None)) for result in results
    ]


def _copied_back(results: list[Any]) -> list[torch.Tensor]:
    """New tensors. All copies are under way before the first is waited for."""
    for result in results:
        result._copy_single_device_array_to_host_async()
    return [_tensor(result._single_device_array_to_np_array_did_copy()[0]) for result in results]


def _tensor(array: Any) -> torch.Tensor:
    """A copy, laid row behind row; the array may be the device's own memory."""
    import numpy

    narrow = array.dtype.name == "bfloat16"
    whole = numpy.array(array.view(numpy.int16) if narrow else array, order="C", copy=True)
    found = torch.from_numpy(whole)
    return found.view(torch.bfloat16) if narrow else found
