# SPDX-License-Identifier: Apache-2.0
"""XLA through jaxlib: clients for the CPU and a TPU, and compiling for TPUs that are not there."""

import dataclasses
import functools
import gc
import os
import threading
from collections.abc import Mapping
from typing import Any

import torch

from spmdx._targets import tpu as real
from spmdx._targets.client import Client, Runs, library

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


def compiled(text: str) -> bytes:
    """:meth:`Client.compiled` for this CPU."""
    return cpu().compiled(text)


def loaded(program: bytes) -> Runs:
    """:meth:`Client.loaded` for this CPU."""
    return cpu().loaded(program)


def cpu(copies: bool = False) -> Client:
    """The process's only client for the CPU.

    Args:
        copies: treat it as a device with memory of its own, as tests do.
    """
    with _lock:
        native = _made_cpu()
    return Client(native, native.local_devices()[0], copies)


def tpu() -> Client:
    """The process's only client for a TPU: the first chip.

    Raises:
        RuntimeError: libtpu does not begin.
    """
    with _lock:
        native = _made_tpu()
    return Client(native, native.local_devices()[0], copies=True)


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
    with _lock:
        _load_tpu(xla_client, real.SETTINGS if real.may_be_used() else _NO_TPU)
    chip, *_ = xla_client.make_tfrt_tpu_c_api_device_topology(topology)._make_compile_only_devices()
    with _mlir_context():
        from jaxlib.mlir import ir

        module = ir.Module.parse(text)
        devices = xla_client.DeviceList((chip,))
        executable = chip.client.compile(module, devices, Client(chip.client, chip).options())
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
def _made_cpu() -> Any:
    xla_client = library()
    told = os.environ.get("NPROC")
    os.environ["NPROC"] = told or str(torch.get_num_threads())  # that XLA makes as many threads
    try:
        client = xla_client.make_cpu_client(asynchronous=False)
    finally:
        if told is None:
            del os.environ["NPROC"]
    gc.callbacks.append(_collect)
    return client


@functools.cache
def _made_tpu() -> Any:
    client = make_tpu()
    gc.callbacks.append(_collect)
    return client


def make_tpu() -> Any:
    """libtpu's client, which waits, or ends the process, where there is no TPU for it.

    Raises:
        RuntimeError: it does not begin.
    """
    xla_client = library()
    _load_tpu(xla_client, real.SETTINGS)
    return xla_client.make_c_api_client("tpu")


def _collect(phase: str, _: dict[str, Any]) -> None:
    """Results that died in threads without the GIL wait for this."""
    if phase == "stop":
        library()._xla.collect_garbage()


def _load_tpu(xla_client: Any, settings: Mapping[str, str]) -> None:
    """libtpu, which reads settings once."""
    path = real.library()
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    if not xla_client.pjrt_plugin_loaded("tpu"):
        xla_client.load_pjrt_plugin_dynamically("tpu", str(path))
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
