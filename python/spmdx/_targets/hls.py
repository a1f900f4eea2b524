# SPDX-License-Identifier: Apache-2.0
"""Segments as C++ for high-level synthesis, which makes circuits of it."""

import ctypes
import dataclasses
import functools
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._segments.compiler import Compiler, Runs
from spmdx._segments.decompositions import taken
from spmdx._segments.graph_module import graph_module
from spmdx._segments.primitive import primitive_text
from spmdx._segments.segment import DTYPES, Segment

_LIBRARY = "libsegment.so"
# Ops that raise where an index is out of range, which a circuit does not.
_LEFT_ALONE = (
    *("aten.embedding", "aten.index", "aten._unsafe_index", "aten.gather"),
    *("aten.nll_loss", "aten.cross_entropy_loss", "aten.take"),
)


@dataclasses.dataclass(frozen=True)
class HlsProject:
    """A folder with a circuit as C++, and what it is thought to take.

    Attributes:
        folder: where it is; ``make`` there builds and runs it.
        report: the estimate as a text, by stages.
        latency: cycles from the first element that comes to the last one that goes.
        interval: cycles from one run to the next.
        dsp: multipliers of an FPGA.
        bram18: memories of 18 Kbit.
        lut: tables that make logic.
        ff: registers of one bit.

    Example:
        >>> import spmdx
        >>> spmdx.compilers.HlsProject.__name__
        'HlsProject'
    """

    folder: pathlib.Path
    report: str
    latency: int
    interval: int
    dsp: int
    bram18: int
    lut: int
    ff: int


def hls_project(
    segment: Segment,
    folder: str | pathlib.Path,
    number: str = "float",
    constants: Mapping[int, torch.Tensor] | None = None,
    inputs: Sequence[torch.Tensor] | None = None,
    unroll: int = 4,
) -> HlsProject:
    """Write a project of C++ for an FPGA, with data to try it on.

    Args:
        segment: ops and types, as :func:`spmdx.compilers.segment_of` gives them.
        folder: is made, if it is not there.
        number: what the circuit computes in: ``"float"``, or ``"fixed<16,6>"``, of 16 bits of
            which 6 are before the point.
        constants: inputs that are parts of the circuit, by the numbers of their values.
        inputs: tensors for the others, in their order; without, random ones.
        unroll: products that one product of matrices makes at once, at most.

    Returns:
        Where it is, and an estimate of what it takes.

    Raises:
        NotTaken: ops of the segment are not written; says which ones, and why.
        ShardingError: there is no such number, or a constant has another shape.

    Example:
        >>> import spmdx, tempfile, torch
        >>> segment, kept = spmdx.compilers.segment_of(torch.nn.ReLU(), [torch.ones(4)])
        >>> spmdx.compilers.hls_project(segment, tempfile.mkdtemp()).dsp
        0
    """
    folder, constants = pathlib.Path(folder), constants or {}
    places = {number: i for i, (number, _) in enumerate(segment.inputs)}
    numbers = {places[k]: tensor.double().flatten().tolist() for k, tensor in constants.items()}
    check = functools.partial(_check, number=number)
    found = _C.hls_project(primitive_text(segment, _rows(), check, number), number, unroll, numbers)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for name, text in found["files"].items():
        (folder / name).write_text(text)
    _write_data(segment, folder / "data", constants, inputs)
    figures = {f.name: found[f.name] for f in dataclasses.fields(HlsProject) if f.name in found}
    return HlsProject(folder, **figures)


def _write_data(
    segment: Segment,
    folder: pathlib.Path,
    constants: Mapping[int, torch.Tensor],
    inputs: Sequence[torch.Tensor] | None,
) -> None:
    """Inputs, and what PyTorch makes of them."""
    free = iter(_examples(segment, constants) if inputs is None else inputs)
    given = [constants[n] if n in constants else next(free) for n, _ in segment.inputs]
    for place, ((number, _), tensor) in enumerate(zip(segment.inputs, given, strict=True)):
        if number not in constants:
            (folder / f"in{place}.bin").write_bytes(_bytes(tensor))
    with torch.no_grad():
        expected = graph_module(segment)(*given)
    for place, tensor in enumerate(expected):
        (folder / f"expected{place}.bin").write_bytes(_bytes(tensor))


def _examples(segment: Segment, constants: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    kinds = [kind for number, kind in segment.inputs if number not in constants]
    return [
        torch.randn(kind.shape, generator=generator).to(DTYPES[kind.dtype])
        if DTYPES[kind.dtype].is_floating_point
        else torch.zeros(kind.shape, dtype=DTYPES[kind.dtype])
        for kind in kinds
    ]


def _bytes(tensor: torch.Tensor) -> bytes:
    kept = torch.float32 if tensor.is_floating_point() else torch.int32
    return tensor.detach().to(kept).contiguous().numpy().tobytes()


class Hls(Compiler):
    """Segments as the circuits that an FPGA would be, run on the processor: slow, and a check.

    Source: AMD, Vitis High-Level Synthesis User Guide, UG1399.
    """

    name = "hls"
    dtypes = ("f32", "b8")

    def version(self) -> str:
        """Of the C++ compiler."""
        return f"g++ {_version_of_compiler()}"

    def ops(self, known: Sequence[str]) -> Iterable[str]:
        """Those that are written, or are put together from such.

        Raises:
            FileNotFoundError: make or g++ is not installed.
        """
        for tool in ("make", "g++"):
            if shutil.which(tool) is None:
                raise FileNotFoundError(f"{tool} is not installed, which builds kernels of hls")
        return taken(known, _rows(), _LEFT_ALONE)

    def compile(self, segment: Segment, folder: pathlib.Path) -> None:
        """The project, without data, and its library."""
        for name, content in _files(segment).items():
            (folder / name).write_text(content)
        command = ["make", "-s", _LIBRARY]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"g++ does not take the project: {made.stderr[-500:]}")

    def code(self, segment: Segment) -> str:
        """C++ for high-level synthesis."""
        return _files(segment)["top.cpp"]

    def load(self, segment: Segment, folder: pathlib.Path) -> Runs:
        """The library, for one thread at a time: its stages have memory of their own."""
        function = ctypes.CDLL(str(folder / _LIBRARY)).segment
        function.restype = ctypes.c_char_p
        kinds = [(kind.shape, DTYPES[kind.dtype]) for _, kind in segment.outputs]
        lock = threading.Lock()

        def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            given = [_in_own(tensor.detach().resolve_neg()) for tensor in tensors]
            made = [_in_own(torch.empty(shape, dtype=dtype)) for shape, dtype in kinds]
            with lock:
                wrong = function(_addresses(given), _addresses(made))
            if wrong:
                raise RuntimeError(wrong.decode())
            return [result.to(dtype) for result, (_, dtype) in zip(made, kinds, strict=True)]

        return run


def _files(segment: Segment) -> dict[str, str]:
    text = primitive_text(segment, _rows(), functools.partial(_check, number="float"))
    return _C.hls_project(text, "float", 4, {})["files"]


def _in_own(tensor: torch.Tensor) -> torch.Tensor:
    """As a kernel has it: floats, also what stands for numbers of Python, in f32, others in i32."""
    if tensor.dtype == torch.bool:
        return tensor.contiguous()
    return tensor.to(torch.float32 if tensor.is_floating_point() else torch.int32).contiguous()


def _addresses(tensors: Sequence[torch.Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


@functools.cache
def _version_of_compiler() -> str:
    try:
        found = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True)
    except FileNotFoundError:
        return "none"
    return found.stdout.strip()


def _check(text: str, number: str) -> None:
    _C.hls_project(text, number, 4, {})


@functools.cache
def _rows() -> frozenset[str]:
    return frozenset(_C.ops_of_emitters()["hls"])
