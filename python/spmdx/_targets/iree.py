# SPDX-License-Identifier: Apache-2.0
"""IREE: its compiler for the CPU and for GPUs that are not there, and its runtime."""

import atexit
import pathlib
import re
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils import dlpack

from spmdx._segments.compiler import Compiler, Runs
from spmdx._segments.graph_module import OPS_WITH_PARAMS
from spmdx._segments.machine import processor, version_of
from spmdx._segments.operands import aligned, apart, ready
from spmdx._segments.segment import Segment
from spmdx._targets.stablehlo import ops_taken, raising, results_of, stablehlo_text

_PROGRAM, _TEXT = "segment.vmfb", "segment.mlir"
_DLPACK_CPU = 1  # kDLCPU
_WHOLE = ("--iree-input-demote-f64-to-f32=false", "--iree-input-demote-i64-to-i32=false")
# What ``compile_for`` knows: the backend, and the option that names the chip.
BACKENDS = {
    "cpu": ("llvm-cpu", "--iree-llvmcpu-target-cpu="),
    "rocm": ("rocm", "--iree-rocm-target="),
    "vulkan": ("vulkan-spirv", "--iree-vulkan-target="),
    "cuda": ("cuda", "--iree-cuda-target="),
    "metal": ("metal-spirv", ""),
}
_FLOATS = ("f64", "f32", "bf16", "f16")
# What IREE 3.13 gives other numbers for: sines by few terms, also near 0; powers by a logarithm,
# which those of numbers below 0 and of 0 have not; angles without signs of zeros.
_WRONG = {
    **dict.fromkeys(("stablehlo.sine", "stablehlo.cosine", "stablehlo.tan"), _FLOATS),
    **dict.fromkeys(("stablehlo.power", "stablehlo.atan2", "chlo.zeta"), _FLOATS),
    **dict.fromkeys(("chlo.lgamma", "chlo.digamma", "chlo.polygamma"), _FLOATS),
    # Near 0 of few digits, or functions of C that it does not link.
    **dict.fromkeys(("stablehlo.exponential_minus_one", "stablehlo.log_plus_one"), ("f64",)),
    **dict.fromkeys(("chlo.sinh", "chlo.asinh", "chlo.atanh"), ("f64",)),
    **dict.fromkeys(("stablehlo.tanh", "chlo.acos", "chlo.asin", "stablehlo.remainder"), ("f64",)),
}
_OF_FLOATS = re.compile(r'"((?:stablehlo|chlo)\.\w+)"\(.*\) : \(tensor<(?:\d+x)*(\w+)>')
# What needs one of them for all floats, or sorts.
_LEFT_ALONE = frozenset(
    (
        *("aten.sin", "aten.cos", "aten.tan", "aten.sinc", "aten.atan", "aten.atan2"),
        *("aten.exp2", "aten.pow.Tensor_Tensor", "aten.pow.Scalar"),
        *("aten.sort", "aten.sort.stable"),
    )
)
_UNSTABLE = '"stablehlo.sort"'  # equal numbers change places, though it says that they do not
_WRITES = '"stablehlo.scatter"'  # over its operand, also over one that is the caller's
_modules: "weakref.WeakSet[_Module]" = weakref.WeakSet()


class Iree(Compiler):
    """Segments as StableHLO, which IREE compiles.

    Source: H.-I. C. Liu et al., TinyIREE, IEEE Micro 2022.
    """

    name = "iree"
    ops_with_params = OPS_WITH_PARAMS
    dtypes = ("f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "b8")

    def version(self) -> str:
        """Of IREE's compiler and runtime, and of the processor."""
        packages = "iree-base-compiler", "iree-base-runtime"
        return " ".join([*map(version_of, packages), processor()])

    def ops(self, known: Sequence[str]) -> Iterable[str]:
        """Those that there is StableHLO for, and that IREE is right in.

        Raises:
            ImportError: IREE is not installed.
        """
        _tools()
        _runtime()
        return [name for name in ops_taken(known) if name not in _LEFT_ALONE]

    def compile(self, segment: Segment, folder: pathlib.Path) -> None:
        """A module of IREE's machine, and the text that it was made of."""
        text = self.code(segment)
        (folder / _TEXT).write_text(text)
        (folder / _PROGRAM).write_bytes(compile_for(text, "cpu:host"))

    def code(self, segment: Segment) -> str:
        """StableHLO."""
        return stablehlo_text(segment, _expect_right, self.name)

    def load(self, segment: Segment, folder: pathlib.Path) -> Runs:
        """The module, in contexts of this process."""
        text = (folder / _TEXT).read_text()
        program, writes = (folder / _PROGRAM).read_bytes(), _WRITES in text
        return raising(loaded(program, results_of(text), writes), len(segment.outputs))


def _expect_right(text: str) -> None:
    """Raises ValueError for a module with an op that IREE is wrong in."""
    for name, dtype in _OF_FLOATS.findall(text):
        if dtype in _WRONG.get(name, ()):
            raise ValueError(f"IREE computes other numbers than {name} of {dtype}, or none")
    if _UNSTABLE in text:
        raise ValueError("IREE's sort of equal numbers is not stable")


def compile_for(text: str, target: str) -> bytes:
    """What IREE makes of a module of StableHLO, for a chip that nobody has to have.

    Args:
        text: the module.
        target: ``"cpu:host"``, ``"rocm:gfx942"``, ``"vulkan:rdna3"``, ``"cuda:sm_89"`` or
            ``"metal"``.

    Raises:
        ImportError: IREE's compiler is not installed.
        ValueError: there is no such target.
        RuntimeError: IREE does not take the module.
    """
    kind, _, chip = target.partition(":")
    if kind not in BACKENDS:
        raise ValueError(f"{target!r} is no target. Expected one of {', '.join(BACKENDS)}")
    backend, option = BACKENDS[kind]
    options = [*_WHOLE, option + chip] if chip else [*_WHOLE]
    tools = _tools()
    try:
        return tools.compile_str(
            text, input_type="stablehlo", target_backends=[backend], extra_args=options
        )
    except tools.CompilerToolError as error:
        raise RuntimeError(str(error).partition("Diagnostics:")[2] or str(error)) from error


def loaded(program: bytes, outputs: int, writes: bool = False) -> Runs:
    """A function of tensors, for any thread; its results are new ones.

    It computes in the thread that calls it, without the GIL.

    Args:
        writes: whether the program may write over what it is given, which then are copies.

    Raises:
        ValueError: it was damaged.
    """
    return _Module(program, outputs, writes)


class _Module:
    """A module, in as many contexts as threads have run it at once."""

    def __init__(self, program: bytes, outputs: int, writes: bool) -> None:
        self._program, self._outputs = program, outputs
        self._operand = torch.clone if writes else aligned
        self._lock = threading.Lock()
        self._idle: list[_Context] | None = [_Context(program, outputs)]
        _modules.add(self)

    def __call__(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        with self._lock:
            context = self._idle.pop() if self._idle else None
        context = context or _Context(self._program, self._outputs)
        try:
            return context.run([self._operand(ready(tensor)) for tensor in tensors])
        finally:
            with self._lock:
                if self._idle is not None:
                    self._idle.append(context)

    def end(self) -> None:
        """Keep no context any more."""
        with self._lock:
            self._idle = None


@atexit.register
def _end() -> None:
    """Kernels outlive the interpreter, at whose end IREE lists on stderr what is left of it."""
    for module in list(_modules):
        module.end()


class _Context:
    """A module with a device and a state of its own, for one thread at a time."""

    def __init__(self, program: bytes, outputs: int) -> None:
        runtime = _runtime()
        instance = runtime.VmInstance()
        # Its work is done in the thread that asks for it. Results of "local-task" may not outlive
        # their device.
        self._device = runtime.get_driver("local-sync").create_default_device()
        module = runtime.VmModule.copy_buffer(instance, program)
        hal = runtime.create_hal_module(instance, self._device)
        self._context = runtime.VmContext(instance, [hal, module])
        self._main = module.lookup_function("main")
        self._outputs = outputs

    def run(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        runtime = _runtime()
        operands = runtime.VmVariantList(len(inputs))
        results = runtime.VmVariantList(self._outputs)
        for tensor in inputs:
            operands.push_ref(self._device.from_dlpack_capsule(dlpack.to_dlpack(tensor)))
        self._context.invoke(self._main, operands, results)
        views = [results.get_as_object(i, runtime.HalBufferView) for i in range(self._outputs)]
        return apart(map(self._tensor, views), inputs)

    def _tensor(self, view: Any) -> torch.Tensor:
        return dlpack.from_dlpack(self._device.create_dlpack_capsule(view, _DLPACK_CPU, 0))


def _tools() -> Any:
    try:
        import iree.compiler.tools
    except ImportError as error:
        raise ImportError(f"{error}. Install it: pip install 'spmdx[iree]'") from error
    return iree.compiler.tools


def _runtime() -> Any:
    try:
        import iree.runtime
    except ImportError as error:
        raise ImportError(f"{error}. Install it: pip install 'spmdx[iree]'") from error
    return iree.runtime
