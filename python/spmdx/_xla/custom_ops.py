# SPDX-License-Identifier: Apache-2.0
"""The ops that torch_xla adds to torch.ops.xla: marks that tracers of PyTorch can see."""

import ast
import functools

import torch

from spmdx._xla import marking, state
from spmdx._xla.mesh import Mesh

_library = torch.library.Library("xla", "FRAGMENT")  # alive as long as its ops are wanted


@functools.lru_cache(64)
def _mesh(text: str) -> Mesh:
    found = Mesh.from_str(text)
    if found is None:
        raise ValueError(f"{text!r} is no mesh. Expected what str() of a Mesh gives.")
    return found


def _aot_mark_sharding(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
    marking.require_spmd()
    copied = state.require_xla(t).clone()
    marking.annotate(copied, _mesh(mesh).get_op_sharding(ast.literal_eval(partition_spec)))
    return copied


def _dynamo_mark_sharding(
    t: torch.Tensor,
    device_ids: list[int],
    mesh_shape: list[int],
    axis_names: str,
    partition_spec: str,
) -> None:
    names = ast.literal_eval(axis_names)
    text = str(Mesh(device_ids, tuple(mesh_shape), names))
    marking.mark(t, _mesh(text).get_op_sharding(ast.literal_eval(partition_spec)))


@functools.cache
def install() -> None:
    """Defines the ops; once."""
    if hasattr(torch.ops.xla, "aot_mark_sharding"):
        return
    _library.define("aot_mark_sharding(Tensor t, str mesh, str partition_spec) -> Tensor")
    _library.impl("aot_mark_sharding", _aot_mark_sharding, "PrivateUse1")
    _library.impl("aot_mark_sharding", lambda t, *_: torch.empty_like(t), "Meta")
    _library.define(
        "dynamo_mark_sharding(Tensor(a!) t, int[] device_ids, int[] mesh_shape, str axis_names, "
        "str partition_spec) -> ()"
    )
    _library.impl("dynamo_mark_sharding", _dynamo_mark_sharding, "PrivateUse1")
    _library.impl("dynamo_mark_sharding", lambda *_: None, "Meta")
