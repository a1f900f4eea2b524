# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own compiler: segments as libraries, which run without Python."""

import pathlib
import shutil
from collections.abc import Iterable, Iterator, Sequence

import torch

import spmdx._C as _C
from spmdx._segments.compiler import Compiler, NotTaken
from spmdx._segments.graph_module import OPS_WITH_PARAMS, graph_module, operator
from spmdx._segments.segment import Segment

_LIBRARY = "segment.so"
# PyTorch's kernel of it is called; leaving it alone would cut a segment in two.
_ATTENTION = (
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward",
)
# Views by strides, which are others here, what is one kernel already, what is lowered without
# regard to the scales that it is given, what ends in calls that a library cannot make, and what
# loses a NaN or the sign of an infinity.
_LEFT_ALONE = (
    *("aten.as_strided", "aten._scaled_dot_product", "aten._native_multi"),
    *("aten.upsample_nearest1d_backward", "aten.upsample_nearest2d_backward"),
    *("aten.upsample_nearest3d_backward", "aten._upsample_nearest_exact"),
    *("aten.median.dim", "aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa"),
    *("aten._upsample_lanczos2d_aa", "aten.softshrink", "aten.logit_backward"),
    "aten.hardswish_backward",
)
# What it is wrong in: its results are of another dtype, or of fewer digits than the dtype has.
_WRONG_IN = {
    "aten.bmm": ("i32",),
    "aten._native_batch_norm_legit_functional": ("bf16", "f16"),
    "aten._weight_norm_interface": ("bf16", "f16"),
    "aten.soft_margin_loss": ("f16",),
    "aten.soft_margin_loss_backward": ("f16",),
    "aten.hardsigmoid_backward": ("f64",),
}
# Ops whose error is the program's: an index out of range is thrown among threads there, and an
# integer is divided by zero, both of which end the process instead.
_MAY_FAIL = (
    *("aten.embedding", "aten.index", "aten._unsafe_index", "aten.gather", "aten.scatter"),
    *("aten.take", "aten.put", "aten.nll_loss", "aten.cross_entropy_loss", "aten.masked_scatter"),
    *("aten.floor_divide", "aten.remainder", "aten.fmod", "aten.div.Tensor_mode"),
    *("aten.div.Scalar_mode", "aten.one_hot", "aten.max_unpool", "aten.histc", "aten.bincount"),
)


class Inductor(Compiler):
    """Segments as C++ that AOTInductor fuses.

    Source: J. Ansel et al., PyTorch 2, ASPLOS 2024.
    """

    name = "inductor"
    ops_with_params = OPS_WITH_PARAMS
    in_place = True
    views = True

    def version(self) -> str:
        """Of PyTorch, of the processor's instructions, and of threads."""
        parts = torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
        return " ".join(map(str, parts))

    def ops(self, known: Sequence[str]) -> Iterable[str]:
        """Those that Inductor lowers, or that decompose into such."""
        from torch._inductor import decomposition, lowering
        from torchgen.aoti.fallback_ops import inductor_fallback_ops

        def is_taken(name: str) -> bool:
            target = operator(name)
            if name in _ATTENTION:
                return str(target) in inductor_fallback_ops
            if target is None or name.startswith(_LEFT_ALONE + _MAY_FAIL) or _is_random(target):
                return False
            if target in lowering.fallbacks and str(target) not in inductor_fallback_ops:
                return False  # a library cannot call it
            return target in lowering.lowerings or target in decomposition.decompositions

        return filter(is_taken, known)

    def compile(self, segment: Segment, folder: pathlib.Path) -> None:
        """Through ``torch._inductor.aot_compile``.

        Raises:
            NotTaken: ops that it is wrong in.
        """
        import torch._inductor as inductor

        if wrong := dict(_wrong(segment)):
            raise NotTaken(wrong)
        module = graph_module(segment, _reads_rows)
        with torch.no_grad():
            exported = torch.export.export(module, tuple(segment.examples()), strict=False)
            made = inductor.aot_compile(
                exported.module(),
                tuple(segment.examples()),
                options={"aot_inductor.package": False},
            )
        shutil.copy(str(made), folder / _LIBRARY)

    def load(self, segment: Segment, folder: pathlib.Path) -> pathlib.Path:
        """The library, which takes and gives tensors by itself."""
        return folder / _LIBRARY


def _reads_rows(name: str) -> bool:
    """PyTorch's kernels that are called as they are, and read other layouts without a word."""
    from torch._inductor import lowering

    return operator(name) in lowering.fallbacks and _C.needs_contiguous(name)


def _wrong(segment: Segment) -> Iterator[tuple[int, str]]:
    for place, op in enumerate(segment.ops):
        dtype = op.types[0].dtype
        if dtype in _WRONG_IN.get(op.name, ()):
            yield place, f"Inductor's {op.name} is not PyTorch's in {dtype}"


def _is_random(target: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in target.tags
