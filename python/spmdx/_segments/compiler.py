# SPDX-License-Identifier: Apache-2.0
"""What a compiler is: one class, which lives in two processes."""

import operator
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch

from spmdx._segments.graph_module import graph_module
from spmdx._segments.segment import Segment

Runs = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]


class NotTaken(Exception):
    """Some ops of a segment cannot be compiled, though others of the same name may be.

    Args:
        reasons: why, by the ops' places in ``segment.ops``.

    Example:
        >>> import spmdx
        >>> str(spmdx.compilers.NotTaken({3: "it divides integers"}))
        '1 op: it divides integers'
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.reasons = {operator.index(place): str(why) for place, why in reasons.items()}
        many = "op" if len(self.reasons) == 1 else "ops"
        first = next(iter(self.reasons.values()), "no reason is told")
        super().__init__(f"{len(self.reasons)} {many}: {first}")


class Compiler:
    """Makes one kernel of a segment: subclass it to add a target.

    ``ops`` and ``compile`` are called in a process of their own, so that nothing waits for them and
    what they break is theirs; ``load`` in the program's. A package that has a compiler names it
    among its entry points of the group ``spmdx.compilers``.

    Attributes:
        name: what :func:`spmdx.set_compiler` and reports call it.
        dtypes: of tensors that it takes, as spmdx writes them.
        ops_with_params: ops whose floats may be a :class:`spmdx.compilers.Param`, as a learning
            rate is, which differs from run to run. Those of other ops are constants; such an op is
            left to PyTorch's kernels once its floats have differed.
        in_place: what is compiled writes outputs over the inputs that ``segment.over`` names, and
            gives the other ones alone. Else segments name none.
        views: results may be views of inputs, which PyTorch knows as such. Else all of them are new
            memory.

    Example:
        >>> import spmdx
        >>> spmdx.compilers.Compiler.name
        ''
    """

    name: str = ""
    ops_with_params: Collection[str] = ()
    dtypes: Sequence[str] = ("f32", "f64", "bf16", "f16", "i64", "i32", "b8")
    in_place: bool = False
    views: bool = False

    def version(self) -> str:
        """What kernels depend on beside their segments: versions of the compiler, and the machine.

        A kernel that was kept on disk under another version is not used. Called in the program's
        process, so that it imports nothing large.
        """
        return ""

    def ops(self, known: Sequence[str]) -> Iterable[str]:
        """Those of the known ops that this takes; others are run by PyTorch's kernels."""
        raise NotImplementedError

    def compile(self, segment: Segment, folder: pathlib.Path) -> None:
        """Write into an empty folder what ``load`` needs.

        Raises:
            NotTaken: some of its ops cannot be compiled in this use: they are left to PyTorch's
                kernels from then on, and what is around them is asked for again.
            Exception: any other: the segment is run by PyTorch's kernels, and the report says why.
        """
        raise NotImplementedError

    def code(self, segment: Segment) -> str:
        """What this compiler is told of the segment, for people to read.

        Returns:
            Python of torch.fx; compilers that read another language show that.
        """
        return graph_module(segment).code

    def load(self, segment: Segment, folder: pathlib.Path) -> Runs | pathlib.Path:
        """What runs the segment.

        Returns:
            A function of a list of tensors (:class:`Segment`), or the path of a library that
            AOTInductor made, which runs without Python.
        """
        raise NotImplementedError
