# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.spmd.xla_sharding: annotations, under torch_xla's names and as strict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from spmdx._annotate.annotation import annotation_of
from spmdx._annotate.sharding import shard_as as _shard_as
from spmdx._base.entries import cutting
from spmdx._base.own_devices import NAMES
from spmdx._xla import marking, state
from spmdx._xla.device.absent import absent
from spmdx._xla.linear import (
    EinsumLinear,
    XLAPatchedLinear,
    apply_backward_optimization_barrier,
    apply_xla_patch_to_nn_linear,
    xla_patched_nn_linear_forward,
)
from spmdx._xla.manual_api import (
    _mark_manual_sharding,
    disable_manual_sharding,
    enable_manual_sharding,
)
from spmdx._xla.mesh import (
    HybridMesh,
    Mesh,
    PartitionSpec,
    get_1d_mesh,
    get_global_mesh,
    set_global_mesh,
)
from spmdx._xla.op_sharding import OpSharding, ShardingType
from spmdx._xla.sharded_tensor import XLAShardedTensor
from spmdx._xla.shards import XLAShard

__all__ = [
    "EinsumLinear",
    "HybridMesh",
    "MarkShardingFunction",
    "Mesh",
    "PartitionSpec",
    "ShardingSpec",
    "ShardingType",
    "XLAPatchedLinear",
    "XLAShard",
    "XLAShardedTensor",
    "_mark_manual_sharding",
    "annotate_custom_sharding",
    "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear",
    "clear_sharding",
    "disable_manual_sharding",
    "enable_manual_sharding",
    "get_1d_mesh",
    "get_global_mesh",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "set_global_mesh",
    "shard_as",
    "unwrap_sharded_tensor",
    "wrap_as_sharded_tensor",
    "wrap_if_sharded",
    "xla_patched_nn_linear_forward",
]


def _sharding_of(tensor: torch.Tensor, mesh: Mesh, spec: Sequence[Any]) -> OpSharding:
    rank = tensor.dim()
    assert len(spec) == rank, (
        f"Partition spec length ({len(spec)}) should be equal to the input rank ({rank})."
    )
    return mesh.get_op_sharding(tuple(spec))


def _requires_grad(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf


def mark_sharding(t: Any, mesh: Mesh, partition_spec: Sequence[Any]) -> XLAShardedTensor:
    """Say how ``t`` lies on ``mesh``, in place.

    Args:
        t: a tensor on the device, or an :class:`XLAShardedTensor`.
        mesh: all devices.
        partition_spec: one entry for each dim of ``t``.

    Returns:
        A tensor that stands for ``t``.

    Raises:
        RuntimeError: it is on another device, is cut otherwise already, or there was no use_spmd.
        AssertionError: the spec does not fit.

    Example:
        >>> import torch
        >>> from spmdx.torch_xla import runtime as xr
        >>> from spmdx.torch_xla.distributed import spmd as xs
        >>> xr.use_spmd()
        >>> x = torch.ones(8, 2).to("spmdx")
        >>> xs.mark_sharding(x, xs.get_1d_mesh("x"), ("x", None)).sharding_type.name
        'TILED'
    """
    return _said(marking.mark, t, mesh, partition_spec)


def annotate_custom_sharding(t: Any, mesh: Mesh, partition_spec: Sequence[Any]) -> XLAShardedTensor:
    """As :func:`mark_sharding`, for a tensor that is cut otherwise already, too.

    Args:
        t: a tensor on the device, or an :class:`XLAShardedTensor`.
        mesh: all devices.
        partition_spec: one entry for each dim of ``t``.

    Returns:
        A tensor that stands for ``t``.
    """
    return _said(marking.annotate, t, mesh, partition_spec)


def _said(
    say: Callable[[torch.Tensor, OpSharding], None], t: Any, mesh: Mesh, spec: Sequence[Any]
) -> XLAShardedTensor:
    marking.require_spmd()
    found = state.require_xla(t)
    say(found, _sharding_of(found, mesh, spec))
    return wrap_as_sharded_tensor(t, mesh.mesh_shape, tuple(spec))


def cut_longest_dim(parameter: torch.nn.Parameter, mesh: Mesh, entry: Any) -> None:
    """Mark a parameter so that its longest dim is cut, unless somebody has marked it.

    Args:
        parameter: on the device.
        mesh: all devices.
        entry: the axis, or the axes, that cut.
    """
    if annotation_of(parameter) is not None or not parameter.dim():
        return
    longest = max(range(parameter.dim()), key=lambda dim: parameter.shape[dim])
    mark_sharding(parameter, mesh, cutting(parameter.dim(), longest, entry))


class MarkShardingFunction(torch.autograd.Function):
    """A copy of a tensor that is annotated, and whose gradient is."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, mesh: Mesh, partition_spec: tuple) -> torch.Tensor:
        ctx.mesh, ctx.partition_spec = mesh, tuple(partition_spec)
        return torch.ops.xla.aot_mark_sharding(t, str(mesh), str(ctx.partition_spec))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        said = str(ctx.mesh), str(ctx.partition_spec)
        return torch.ops.xla.aot_mark_sharding(grads[0], *said), None, None


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Mesh, partition_spec: Sequence[Any]
) -> torch.Tensor:
    """A copy of ``t`` that is annotated, and whose gradient is; ``t`` stays as it is.

    Args:
        t: a tensor on the device.
        mesh: all devices.
        partition_spec: one entry for each dim of ``t``.

    Returns:
        The copy.
    """
    return MarkShardingFunction.apply(t, mesh, tuple(partition_spec))


def shard_as(a: Any, b: Any) -> tuple[Any, Any]:
    """Give the tensors of two structures the same shardings, pair by pair.

    Args:
        a: a tensor, or a structure of them.
        b: one of the same form.

    Returns:
        Both.
    """
    pairs = zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True)
    for x, y in pairs:
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            x, y = state.require_xla(x), state.require_xla(y)
            if annotation_of(x) is not None or annotation_of(y) is not None:
                _shard_as(x, y)
    return a, b


def clear_sharding(t: Any) -> torch.Tensor:
    """Forget what was said of ``t``; the data stay where they are.

    Args:
        t: a tensor on the device, or an :class:`XLAShardedTensor`.

    Returns:
        The tensor itself; of an :class:`XLAShardedTensor` what it stands for.
    """
    return marking.clear(unwrap_sharded_tensor(t))


def wrap_as_sharded_tensor(
    t: Any,
    mesh_shape: tuple[int, ...] | None = None,
    partition_spec: tuple | None = None,
) -> XLAShardedTensor:
    """A tensor that stands for ``t`` and says how it was marked.

    Args:
        t: a tensor, or an :class:`XLAShardedTensor`, which is then told the new sharding.
        mesh_shape: the shape of the mesh; None keeps what is known.
        partition_spec: the spec; None keeps what is known.

    Returns:
        ``t`` itself if it is such a tensor.
    """
    if not isinstance(t, XLAShardedTensor):
        return XLAShardedTensor(t, mesh_shape, partition_spec, requires_grad=_requires_grad(t))
    told = mesh_shape or t.mesh_shape, partition_spec or t.partition_spec
    if told != (t.mesh_shape, t.partition_spec):
        t.mesh_shape, t.partition_spec = told
        t.invalidate_spec_cache()
    return t


def unwrap_sharded_tensor(t: Any) -> torch.Tensor:
    """What an :class:`XLAShardedTensor` stands for; other tensors as they are.

    Args:
        t: any tensor.

    Returns:
        A tensor that stands for no other.
    """
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


def wrap_if_sharded(x: Any) -> Any:
    """A tensor that stands for ``x``, if ``x`` is a tensor with a sharding; else ``x``.

    Args:
        x: anything.

    Returns:
        An :class:`XLAShardedTensor`, or ``x``.
    """
    is_plain = isinstance(x, torch.Tensor) and not isinstance(x, XLAShardedTensor)
    if not is_plain or x.device.type not in NAMES:
        return x
    return x if state.sharding_of(x) is None else XLAShardedTensor(x)


@dataclass
class ShardingSpec:
    """How the tensors of a batch lie on a mesh.

    Args:
        mesh: all devices.
        partition_spec: one entry for each dim of the tensors.
        minibatch: whether each process loads its own rows.
    """

    mesh: Mesh
    partition_spec: tuple
    minibatch: bool | None = False

    def __post_init__(self) -> None:
        self._op_sharding = self.mesh.get_op_sharding(tuple(self.partition_spec))

    def can_apply(self, t: torch.Tensor) -> bool:
        """Whether a tensor has as many dims as the spec has entries."""
        return t.dim() == len(self.partition_spec)

    def xla_spec(self, t: torch.Tensor) -> OpSharding | None:
        """The sharding of a tensor; None where the spec does not fit it."""
        return self._op_sharding if self.can_apply(t) else None

    def apply(self, t: torch.Tensor) -> None:
        """Mark a tensor of the device."""
        mark_sharding(t, self.mesh, self.partition_spec)


__getattr__ = absent(
    "torch_xla.distributed.spmd.xla_sharding",
    {"XlaShardingSpec": "Use ShardingSpec: it says the same."},
)
