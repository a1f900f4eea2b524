# SPDX-License-Identifier: Apache-2.0
"""Manual tensors: what one device holds, between enable_manual_sharding and disable_….

Such a tensor has the shape of one device's part. It stands for the parts of all devices, which lie
in a first dim that is cut over all of them; every op is mapped over that dim.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch.utils import _pytree as pytree

from spmdx._annotate.mesh import Mesh
from spmdx._xla import home
from spmdx._xla.op_sharding import op_sharding

_READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__")
_REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "min": torch.amin,
    "max": torch.amax,
    "mul": torch.prod,
}


class ManualTensor(torch.Tensor):
    """The part of one device; ``parts`` are those of all, along a first dim, by the device's id."""

    parts: torch.Tensor
    mesh: Mesh

    @staticmethod
    def __new__(cls, parts: torch.Tensor, mesh: Mesh) -> Self:
        shape, stride = parts.shape[1:], torch.empty(parts.shape[1:], device="meta").stride()
        result: Any = torch.Tensor._make_wrapper_subclass(
            cls, shape, strides=stride, dtype=parts.dtype, device=torch.device("spmdx", 0)
        )
        result.parts, result.mesh = parts, mesh
        return result

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"ManualTensor(shape={tuple(self.shape)}, dtype={self.dtype}, {self.mesh!r})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__repr__", "__set__"):
            return super().__torch_function__(func, types, args, kwargs or {})
        if name in _READS:
            raise RuntimeError(
                f"{name} of a manual tensor has no one value: every device has its own. Expected "
                "it after the region. Call disable_manual_sharding first."
            )
        return _mapped(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return ManualTensor(args[0].parts.detach(), args[0].mesh)
        raise RuntimeError(
            f"{func} was called below Python on a manual tensor, which autograd does not see. "
            "Expected ops of its own program. Call disable_manual_sharding first."
        )


def _mapped(func: Any, args: tuple, kwargs: dict) -> Any:
    """What ``func`` makes of the parts of every device."""
    leaves, tree = pytree.tree_flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, ManualTensor)]
    mesh = leaves[at[0]].mesh
    made: list[Any] = []

    def one_device(*parts: torch.Tensor) -> Any:
        filled = list(leaves)
        for i, part in zip(at, parts, strict=True):
            filled[i] = part
        inner_args, inner_kwargs = pytree.tree_unflatten(filled, tree)
        result, form = pytree.tree_flatten(func(*inner_args, **inner_kwargs))
        made[:] = result, form
        found = tuple(value for value in result if isinstance(value, torch.Tensor))
        return found or (parts[0],)

    found = iter(torch.vmap(one_device, randomness="different")(*[leaves[i].parts for i in at]))
    result, form = made
    filled = [
        ManualTensor(next(found), mesh) if isinstance(value, torch.Tensor) else value
        for value in result
    ]
    return pytree.tree_unflatten(filled, form)


def _cut(parts: torch.Tensor, mesh: Mesh) -> torch.Tensor:
    """Says that every device holds its own part."""
    axes = [tuple(range(mesh.ndim)), *[()] * (parts.dim() - 1)]
    names = (mesh.axis_names,) + (None,) * (parts.dim() - 1)
    return home.annotate(parts, op_sharding(mesh, axes, names))


def _axes_in(axes: Sequence[Sequence[int]]) -> list[int]:
    """All axes that cut a dim, in the order of the dims."""
    return [axis for entry in axes for axis in entry]


def _local_shape(shape: Sequence[int], mesh: Mesh, axes: Sequence[Sequence[int]]) -> list[int]:
    """The shape of one device's part. Raises RuntimeError for parts that would not be equal."""
    found = []
    for size, entry in zip(shape, axes, strict=True):
        parts = math.prod(mesh.mesh_shape[axis] for axis in entry)
        if size % parts:
            raise RuntimeError(
                f"a dim of size {size} cannot be cut evenly for {parts} devices. In a manual "
                "region all devices have the same shape. Pad the tensor first."
            )
        found.append(size // parts)
    return found


def enter(tensor: torch.Tensor, mesh: Mesh, axes: Sequence[Sequence[int]]) -> ManualTensor:
    """The parts of ``tensor``, whose dims are cut by these axes of the mesh."""
    local, used = _local_shape(tensor.shape, mesh, axes), _axes_in(axes)
    sizes: list[int] = []
    for size, entry in zip(local, axes, strict=True):
        sizes += [*(mesh.mesh_shape[axis] for axis in entry), size]
    where = dict(zip(used, _places(axes), strict=True))
    rest = [dim for dim in range(len(sizes)) if dim not in where.values()]
    grid = tensor.reshape(sizes).permute([*(where[axis] for axis in sorted(used)), *rest])
    for axis in range(mesh.ndim):  # along those that cut nothing every device holds the same
        if axis not in used:
            grid = grid.unsqueeze(axis)
    grid = grid.expand(*mesh.mesh_shape, *local)
    return ManualTensor(_cut(grid.reshape(mesh.size(), *local), mesh), mesh)


def leave(
    tensor: ManualTensor, mesh: Mesh, axes: Sequence[Sequence[int]], shape: Sequence[int]
) -> torch.Tensor:
    """The tensor of ``shape`` that these are the parts of."""
    local, used = _local_shape(shape, mesh, axes), _axes_in(axes)
    if list(tensor.shape) != local:
        raise RuntimeError(
            f"the manual tensor has shape {tuple(tensor.shape)}. Expected {tuple(local)}, one "
            f"device's part of {tuple(shape)}. Give the shape that all parts have together."
        )
    grid = tensor.parts.reshape(*mesh.mesh_shape, *local)
    for axis in reversed(range(mesh.ndim)):
        if axis not in used:
            grid = grid.select(axis, 0)
    held, order, at = sorted(used), [], len(used)
    for entry in axes:
        order += [*(held.index(axis) for axis in entry), at]
        at += 1
    return grid.permute(order).reshape(list(shape))


def _places(axes: Sequence[Sequence[int]]) -> list[int]:
    """Of each axis, the dim that it is where all dims are cut into axes and rest."""
    found: list[int] = []
    at = 0
    for entry in axes:
        found += range(at, at + len(entry))
        at += len(entry) + 1
    return found


def _reduced(tensor: ManualTensor, how: str, groups: Sequence[Sequence[int]]) -> list:
    """For each device, by its position: the reduction over its group, and its rank in that."""
    if how not in _REDUCTIONS:
        raise RuntimeError(f"the reduction is {how!r}. Expected one of {sorted(_REDUCTIONS)}.")
    ids = tensor.mesh.device_ids.tolist()
    found: list = [(part, 0) for part in tensor.parts.unbind(0)]
    for group in groups:
        at = [ids.index(int(device)) for device in group]
        total = tensor.parts[at[0] : at[0] + 1]
        stacked = torch.stack([tensor.parts[i] for i in at]) if len(at) > 1 else total
        if at == list(range(len(ids))):
            stacked = tensor.parts
        value = _REDUCTIONS[how](stacked, 0)
        for rank, i in enumerate(at):
            found[i] = value, rank
    return found


def all_reduce(tensor: ManualTensor, how: str, scale: float, groups: Any) -> ManualTensor:
    """The reduction over each group of devices, on all of them."""
    found = [value for value, _ in _reduced(tensor, how, groups)]
    return ManualTensor(_cut(torch.stack(found) * scale, tensor.mesh), tensor.mesh)


def reduce_scatter(
    tensor: ManualTensor, how: str, scale: float, dim: int, count: int, groups: Any
) -> ManualTensor:
    """Each device's part of the reduction over its group."""
    found = [value.chunk(count, dim)[rank] for value, rank in _reduced(tensor, how, groups)]
    return ManualTensor(_cut(torch.stack(found) * scale, tensor.mesh), tensor.mesh)
