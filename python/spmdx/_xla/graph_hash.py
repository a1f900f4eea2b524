# SPDX-License-Identifier: Apache-2.0
"""A hash of the ops that tensors still wait for: the same where a plan would be found again."""

import hashlib
import re
from collections.abc import Sequence

import torch

import spmdx._C as _C
from spmdx._xla import state

_VALUE = re.compile(r"%\d+")


def _numbers(values: Sequence[torch.Tensor | None], wanted: Sequence[torch.Tensor]) -> list[int]:
    """The last value that each of the tensors has in the recording; -1 where it has none."""
    last = {_C.memory_id(value): i for i, value in enumerate(values) if value is not None}
    return [last.get(_C.memory_id(tensor), -1) for tensor in wanted]


def graph_hash(tensors: Sequence[torch.Tensor]) -> bytes:
    """The hash of what computes these tensors, and of how its inputs are annotated.

    Args:
        tensors: of the device.

    Returns:
        32 bytes. Data do not count, nor where in the program the ops were called.
    """
    found = [state.require_xla(tensor) for tensor in tensors]
    recording = _C.recording()
    values, nodes = recording.values(), recording.nodes
    maker = {value: node for node in nodes for value in node["outputs"]}
    lines: list[str] = []
    seen: dict[int, int] = {}  # by the value, its number in the order in which they are met

    def visit(value: int) -> None:
        if value in seen:
            return
        node = maker.get(value)
        if node is None:
            seen[value] = len(seen)
            tensor = values[value]
            known = None if tensor is None else state.sharding_of(tensor)
            lines.append(f"input {known}")
            return
        for operand in node["inputs"]:
            visit(operand)
        for result in node["outputs"]:
            seen[result] = len(seen)
        lines.append(_VALUE.sub(lambda m: f"%{seen.get(int(m[0][1:]), -1)}", node["text"]))

    for tensor, value in zip(found, _numbers(values, found), strict=True):
        if value >= 0:
            visit(value)
        lines.append(f"return {seen.get(value, -1)} {tuple(tensor.shape)} {tensor.dtype}")
    return hashlib.sha256("\n".join(lines).encode()).digest()
