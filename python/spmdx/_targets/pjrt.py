# SPDX-License-Identifier: Apache-2.0
"""All that is known of jaxlib: XLA's client for the CPU, and XLA for chips that are not there."""

import dataclasses
import functools
import gc
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import dlpack

from spmdx._segments.operands import ready

Runs = Callable[[list[torch.Tensor]], list[torch.Tensor]]
# Rounding as it is written: no bfloat16 that is kept in more bits, no reordered sums, no lost NaN.
_EXACT = {
    "xla_allow_excess_precision": False,
    "xla_cpu_enable_fast_math": False,
    "xla_cpu_enable_fast_min_max": False,
}
# Without these libtpu asks the network what machine this is; more than one process may compile.
_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Ahead:
    """What XLA knows of a program that it has compiled for a chip.

    Attributes:
        chip: as XLA calls it.
        argument_bytes: of the inputs.
        output_bytes: of the results.
        temp_bytes: that it needs beside both while it runs.
        peak_bytes: of all of it at once.
        optimal_seconds: that XLA thinks it takes, if it says so.
        flops: that it counts.
    """

    chip: str
    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    peak_bytes: int
    optimal_seconds: float | None
    flops: float


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


def compiled(text: str) -> bytes:
    """A program for this CPU of a module of StableHLO, which :func:`loaded` takes.

    Raises:
        RuntimeError: XLA does not take it.
    """
    client, devices = _cpu()
    return client.compile_and_load(text, devices, _options()).serialize()


def loaded(program: bytes) -> Runs:
    """A function of tensors, for any thread; its results are new ones.

    It computes in the thread that calls it, without the GIL, with the help of the client's threads.

    Raises:
        RuntimeError: it was damaged, or is for another version of XLA.
    """
    client, devices = _cpu()
    executable = client.deserialize_executable(program, devices, None)
    xla = library()._xla
    (device,) = client.local_devices()

    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        xla.collect_garbage()
        arrays = [
            xla.dlpack_managed_tensor_to_buffer(dlpack.to_dlpack(ready(tensor)), device, None)
            for tensor in tensors
        ]
        results = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        return [
            dlpack.from_dlpack(xla.buffer_to_dlpack_managed_tensor(result, None))
            for (result,) in results
        ]

    return run


def compile_ahead(text: str, topology: str) -> Ahead:
    """What a module of StableHLO needs on one chip of a TPU, which nobody has to have.

    Args:
        text: the module.
        topology: ``"v5e:2x2"``, ``"v6e:2x2"``, ``"v4:2x2x1"`` or ``"v5p:2x2x1"``, or larger.

    Raises:
        ImportError: libtpu or jaxlib is not installed.
        RuntimeError: there is no such topology, or XLA does not take the module.
    """
    xla_client = library()
    _load_tpu(xla_client)
    chip, *_ = xla_client.make_tfrt_tpu_c_api_device_topology(topology)._make_compile_only_devices()
    with _mlir_context():
        from jaxlib.mlir import ir

        module = ir.Module.parse(text)
        devices = xla_client.DeviceList((chip,))
        executable = chip.client.compile(module, devices, xla_client.CompileOptions())
    memory, cost = executable.get_compiled_memory_stats(), executable.cost_analysis()
    return Ahead(
        chip.device_kind,
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        memory.peak_memory_in_bytes,
        cost.get("optimal_seconds"),
        cost.get("flops", 0.0),
    )


@functools.cache
def _made_cpu() -> tuple[Any, Any]:
    xla_client = library()
    told = os.environ.get("NPROC")
    os.environ["NPROC"] = told or str(torch.get_num_threads())  # that XLA makes as many threads
    try:
        client = xla_client.make_cpu_client(asynchronous=False)
    finally:
        if told is None:
            del os.environ["NPROC"]
    gc.callbacks.append(_collect)
    return client, xla_client.DeviceList(tuple(client.local_devices()))


def _cpu() -> tuple[Any, Any]:
    """The process's only client, and its device."""
    with _lock:
        return _made_cpu()


def _collect(phase: str, _: dict[str, Any]) -> None:
    """Results that died in threads without the GIL wait for this."""
    if phase == "stop":
        library()._xla.collect_garbage()


def _options() -> Any:
    options = library().CompileOptions()
    options.env_option_overrides = list(_EXACT.items())
    return options


def _load_tpu(xla_client: Any) -> None:
    found = importlib.util.find_spec("libtpu")
    folders: Sequence[str] = (found and found.submodule_search_locations) or ()
    if not folders:
        raise ImportError("no module named 'libtpu'. Install it: pip install --no-deps libtpu")
    for name, value in _NO_TPU.items():
        os.environ.setdefault(name, value)
    with _lock:
        if not xla_client.pjrt_plugin_loaded("tpu"):
            xla_client.load_pjrt_plugin_dynamically("tpu", os.path.join(folders[0], "libtpu.so"))
        if not xla_client.pjrt_plugin_initialized("tpu"):
            xla_client.initialize_pjrt_plugin("tpu")


def _mlir_context() -> Any:
    """Of MLIR, with all dialects that modules have ops of."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    return context
