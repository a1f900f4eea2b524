# SPDX-License-Identifier: Apache-2.0
"""The ops of torch's own op_db and their samples, in sizes that divide by four or that do not."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.testing._internal.common_methods_invocations as invocations
from settings import Setting
from torch.utils import _pytree as pytree
from verdict import DOUBLE, Verdict, nudged

# Memory nobody wrote has no value: shapes and types are compared.
UNWRITTEN = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}


# Not even CUDA has these on the device: positions among the tensors of a sample.
ON_CPU = {"tensor_split": {1}}
# The seed is the oracle's to set.
invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


@dataclasses.dataclass
class Sample:
    """One call of an op.

    Attributes:
        leaves: input, args and kwargs, flat.
        structure: how they belong together.
        tensors: positions in ``leaves`` of different dense tensors.
        simplify: what op_db does to results that are unique up to a sign or an order.
        nudge: a seed, where numbers of 16 bits are one rounding off, also those of cotangents.
    """

    leaves: list[Any]
    structure: pytree.TreeSpec
    tensors: list[int]
    simplify: Callable[[Any], Any]
    nudge: int | None = None

    def replaced(self, tensors: list[torch.Tensor], device: str) -> tuple[Any, tuple, dict]:
        """Input, args and kwargs with these tensors, on this device."""
        by_id = {id(self.leaves[at]): t for at, t in zip(self.tensors, tensors, strict=True)}
        leaves = [by_id.get(id(leaf), leaf) for leaf in self.leaves]
        return pytree.tree_unflatten([device if is_cpu(x) else x for x in leaves], self.structure)

    def elements(self) -> int:
        """Of all its tensors."""
        return sum(self.leaves[at].numel() for at in self.tensors)

    def nudged(self, seed: int) -> "Sample":
        """With numbers of 16 bits one rounding off."""
        made = {id(leaf): nudged(leaf, seed) for leaf in self.leaves if is_dense(leaf)}
        leaves = [made.get(id(leaf), leaf) for leaf in self.leaves]
        return dataclasses.replace(self, leaves=leaves, nudge=seed)

    def doubled(self) -> "Sample":
        """The same numbers in double precision."""
        made: dict[int, torch.Tensor] = {}
        for leaf in self.leaves:
            if is_dense(leaf) and leaf.dtype in DOUBLE and id(leaf) not in made:
                copy = leaf.detach().clone().to(DOUBLE[leaf.dtype])
                made[id(leaf)] = copy.requires_grad_(leaf.requires_grad)
        leaves = [made.get(id(leaf), leaf) for leaf in self.leaves]
        return dataclasses.replace(self, leaves=leaves)


@contextlib.contextmanager
def sizes(which: dict[str, int]) -> Iterator[None]:
    """op_db makes samples of these sizes inside."""
    before = {name: getattr(invocations, name) for name in which}
    try:
        for name, size in which.items():
            setattr(invocations, name, size)
        yield
    finally:
        for name, size in before.items():
            setattr(invocations, name, size)


def entries(*dtypes: torch.dtype) -> list[Any]:
    """All entries of op_db that take one of these: f32, if none is said."""
    wanted = dtypes or (torch.float32,)
    return [op for op in invocations.op_db if any(dtype in op.dtypes for dtype in wanted)]


def name_of(op: Any) -> str:
    """As ``"scatter_reduce.amax"``: the name and the variant of an entry."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def is_cpu(leaf: Any) -> bool:
    """Whether it names the device that the samples are on."""
    return isinstance(leaf, (str, torch.device)) and str(leaf) == "cpu"


def is_dense(leaf: Any) -> bool:
    """Whether a leaf is a tensor that can be cut."""
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided


def samples(op: Any, which: dict[str, int], dtype: torch.dtype = torch.float32) -> list[Sample]:
    """All samples of an entry that have a dense tensor."""
    smooth = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    with sizes(which):
        torch.manual_seed(0)
        drawn = list(op.sample_inputs("cpu", dtype, requires_grad=smooth))
    made, stay = [], ON_CPU.get(op.name, set())
    for sample in drawn:
        leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = {id(leaf): at for at, leaf in reversed(list(enumerate(leaves))) if is_dense(leaf)}
        places = [at for i, at in enumerate(sorted(tensors.values())) if i not in stay]
        if places:
            made.append(Sample(leaves, structure, places, sample.output_process_fn_grad))
    return made


def share_of(
    op: Any, setting: Setting, dtype: torch.dtype, verdict: Verdict
) -> list[tuple[int, Sample]]:
    """As many samples of an entry as the setting asks for, numbered; a note says why none."""
    try:
        drawn = samples(op, setting.sizes, dtype)
    except Exception as error:
        verdict.note = f"op_db makes no samples of these sizes: {error}"
        return []
    if not drawn:
        verdict.note = "takes no dense tensor"
    step = max(1, len(drawn) // (setting.most_samples or len(drawn) or 1))
    return list(enumerate(drawn))[::step]
