# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime: segments as ONNX models, for the CPU and for what else it has providers of."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from spmdx._segments.compiler import Compiler, Runs
from spmdx._segments.graph_module import OPS_WITH_PARAMS
from spmdx._segments.machine import processor, version_of
from spmdx._segments.operands import aligned, ready
from spmdx._segments.segment import DTYPES, Segment

_MODEL, _PROGRAM = "segment.onnx", "segment.optimized.onnx"
_SILENT = 4  # only what ends the process is logged


@dataclasses.dataclass(frozen=True)
class _Provider:
    """What ONNX Runtime calls a kind of device, the package that has it, and what it gets wrong."""

    name: str
    package: str
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    wrong: tuple[str, ...] = ()


_CPU = _Provider("CPUExecutionProvider", "onnxruntime")
_PROVIDERS = {
    "cpu": _CPU,
    "openvino": _Provider(
        "OpenVINOExecutionProvider",
        "onnxruntime-openvino",
        # Computes in the dtypes of the model, as it does by default on a processor.
        {"device_type": "CPU", "precision": "ACCURACY"},
        # It loses NaN where that is the first of two, and the rest by an infinite number is NaN.
        ("prims.maximum", "prims.minimum", "prims.fmod", "prims.remainder"),
    ),
    "cann": _Provider(
        "CANNExecutionProvider", "onnxruntime-cann", {"precision_mode": "must_keep_origin_dtype"}
    ),
    "rocm": _Provider("ROCMExecutionProvider", "onnxruntime-rocm"),
    "migraphx": _Provider("MIGraphXExecutionProvider", "onnxruntime-migraphx"),
    "tensorrt": _Provider("TensorrtExecutionProvider", "onnxruntime-gpu"),
    "cuda": _Provider("CUDAExecutionProvider", "onnxruntime-gpu", {"use_tf32": "0"}),
}


class OnnxRuntime(Compiler):
    """Segments as ONNX models, which ONNX Runtime runs.

    ``"cpu"`` was run in all dtypes, ``"openvino"`` in f32 on a CPU. The other providers are named
    with what their documentation says, and take tensors of the CPU, which they copy.

    Args:
        provider: ``"cpu"``, ``"openvino"``, ``"cann"``, ``"rocm"``, ``"migraphx"``,
            ``"tensorrt"`` or ``"cuda"``. What it does not take is run by that for the CPU.
        options: of the provider, beside those that keep floats as exact as they are; None leaves
            one of these out.

    Raises:
        ValueError: there is no such provider.

    Example:
        >>> import spmdx
        >>> spmdx.compilers.OnnxRuntime("openvino").provider
        'openvino'

    Source: https://onnx.ai/onnx/operators
    """

    name = "onnxruntime"
    ops_with_params = OPS_WITH_PARAMS
    dtypes = ("f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "b8")

    def __init__(self, provider: str = "cpu", **options: Any) -> None:
        if provider not in _PROVIDERS:
            told = ", ".join(_PROVIDERS)
            raise ValueError(f"{provider!r} is no provider. Expected one of {told}")
        self.provider = provider
        self._options = {key: None if v is None else str(v) for key, v in options.items()}

    def version(self) -> str:
        """Of ONNX and its runtime, of the provider, and of the processor."""
        found = _PROVIDERS[self.provider]
        packages = dict.fromkeys(("onnx", "onnxruntime", found.package))
        told = [f"{key}={value}" for key, value in sorted(self._options.items())]
        return " ".join([*map(version_of, packages), self.provider, *told, processor()])

    def ops(self, known: Sequence[str]) -> Iterable[str]:
        """Those that there are nodes for.

        Raises:
            ImportError: ONNX or its runtime is not installed, or not with this provider.
            RuntimeError: the provider has no device here, or not an option that it was given.
        """
        found, runtime = _PROVIDERS[self.provider], _runtime()
        if found.name not in runtime.get_available_providers():
            raise ImportError(
                f"this onnxruntime has no {found.name}. Install it: pip install {found.package}"
            )
        require_onnx()
        from spmdx._targets.onnx_graph import model_of_primitives, ops_taken

        nothing = Segment("", (), 0, (), ())
        self._session(model_of_primitives(nothing).SerializeToString())
        return ops_taken(known)

    def compile(self, segment: Segment, folder: pathlib.Path) -> None:
        """A model, and what the runtime made of it."""
        import onnx

        model = self._model(segment)
        onnx.checker.check_model(model)
        (folder / _MODEL).write_bytes(model.SerializeToString())
        if self.provider != "cpu":
            self._session(str(folder / _MODEL))
            return
        try:
            self._session(str(folder / _MODEL), optimized=folder / _PROGRAM)
        except Exception:  # its optimizer makes models of some that it does not take itself
            (folder / _PROGRAM).write_bytes(model.SerializeToString())
            self._session(str(folder / _PROGRAM), is_optimized=True)

    def code(self, segment: Segment) -> str:
        """A model of ONNX, as ONNX prints it."""
        from onnx import printer

        return printer.to_text(self._model(segment))

    def load(self, segment: Segment, folder: pathlib.Path) -> Runs:
        """The model, in a session of this process."""
        if self.provider == "cpu":
            session = self._session(str(folder / _PROGRAM), is_optimized=True)
        else:
            session = self._session(str(folder / _MODEL))
        return _Program(session, segment).run

    def _model(self, segment: Segment) -> Any:
        from spmdx._targets.onnx_graph import onnx_model

        wrong = _PROVIDERS[self.provider].wrong
        return onnx_model(segment, lambda alone: self._session(alone.SerializeToString()), wrong)

    def _session(
        self, model: str | bytes, optimized: pathlib.Path | None = None, is_optimized: bool = False
    ) -> Any:
        runtime = _runtime()
        options, levels = runtime.SessionOptions(), runtime.GraphOptimizationLevel
        options.log_severity_level = _SILENT
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # each session would keep what it ever needed
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        all_or_none = levels.ORT_DISABLE_ALL if is_optimized else levels.ORT_ENABLE_ALL
        options.graph_optimization_level = all_or_none
        if optimized is not None:
            options.optimized_model_filepath = str(optimized)
        found = _PROVIDERS[self.provider]
        told = {**found.options, **self._options}
        told = {key: value for key, value in told.items() if value is not None}
        asked = [(found.name, told)] if found is not _CPU else []
        session = runtime.InferenceSession(
            model, options, providers=[*asked, (_CPU.name, {})], enable_fallback=0
        )
        if found.name not in session.get_providers():
            raise RuntimeError(
                f"{found.name} cannot begin, so that the processor would run all of it; it printed "
                f"why. Expected its device, and options that it has: {told}. Name others as "
                f"arguments of OnnxRuntime({self.provider!r})."
            )
        return session


class _Program:
    """A session with the names that tensors have in it."""

    def __init__(self, session: Any, segment: Segment) -> None:
        from spmdx._targets.onnx_graph import ELEMENTS, HOLDS

        self._session = session
        self._native = session._sess
        kinds = [kind.dtype for _, kind in segment.inputs] + ["f64"] * segment.params
        names = {f"value_{i}": i for i in range(len(kinds))}
        self._inputs = [
            (each.name, names[each.name], ELEMENTS[kinds[names[each.name]]])
            for each in session.get_inputs()
        ]
        self._outputs = [
            (DTYPES[kind.dtype], kind.shape, ELEMENTS[kind.dtype]) for _, kind in segment.outputs
        ]
        self._has_facts = HOLDS in {each.name for each in session.get_outputs()}
        self._holds, self._bool = HOLDS, ELEMENTS["b8"]

    def run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """New tensors, which the session writes to; it reads those that it is given."""
        binding = self._session.io_binding()
        kept = []
        for name, place, element in self._inputs:
            tensor = aligned(ready(tensors[place]))
            kept.append(tensor)
            shape = tuple(tensor.shape)
            binding.bind_input(name, "cpu", 0, element, shape, tensor.data_ptr())
        results = []
        for i, (dtype, shape, element) in enumerate(self._outputs):
            results.append(torch.empty(shape, dtype=dtype))
            if results[-1].numel():
                at = results[-1].data_ptr()
                binding.bind_output(f"result_{i}", "cpu", 0, element, shape, at)
        holds = torch.ones((), dtype=torch.bool)
        if self._has_facts:
            binding.bind_output(self._holds, "cpu", 0, self._bool, (), holds.data_ptr())
        self._session.run_with_iobinding(binding)
        if not bool(holds):
            raise IndexError("an index is out of range, or an integer is divided by zero")
        return results


def _runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"{error}. Install it: pip install 'spmdx[onnxruntime]'") from error
    return onnxruntime


def require_onnx() -> None:
    """Raises ImportError, with what to install, where ONNX is not."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{error}. Install it: pip install 'spmdx[onnxruntime]'") from error
