# SPDX-License-Identifier: Apache-2.0
"""distribute_module: DTensor's way to lay out a module by functions of its own."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from spmdx._annotate.annotation import annotation_of
from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._modules.marking import mark_all, require_module
from spmdx.errors import ShardingError, naming


def distribute_module(
    module: torch.nn.Module,
    device_mesh: Mesh | None = None,
    partition_fn: Callable[[str, torch.nn.Module, Any], None] | None = None,
    input_fn: Callable[[torch.nn.Module, Any, Any], Any] | None = None,
    output_fn: Callable[[torch.nn.Module, Any, Any], Any] | None = None,
) -> torch.nn.Module:
    """DTensor's way to lay out the parameters, the arguments and the results of a module.

    Args:
        module: moved to device "spmdx" where it is not there yet.
        device_mesh: a :class:`spmdx.Mesh` or a ``torch.distributed.DeviceMesh``; None means the
            global mesh. The functions are called with the mesh that it becomes.
        partition_fn: called with the name of every module within, the module, and the mesh; it lays
            out parameters with :func:`spmdx.distribute_tensor` or :func:`spmdx.mark_sharding`.
            Those that it leaves out are replicated.
        input_fn: called with the module, its positional arguments and the mesh before each forward
            pass; what it returns takes their place.
        output_fn: called with the module, what it returns and the mesh after it; likewise.

    Returns:
        ``module`` itself.

    Raises:
        ShardingError: no mesh, a function of another number of arguments, or a ``partition_fn``
            that makes DTensors.

    Example:
        >>> import torch, spmdx
        >>> from torch.distributed.tensor import Shard
        >>> def rows(name, module, mesh):
        ...     for parameter in module.parameters(recurse=False):
        ...         spmdx.distribute_tensor(parameter, mesh, [Shard(0)])
        >>> net = spmdx.distribute_module(torch.nn.Linear(4, 8), spmdx.get_1d_mesh("x"), rows)
        >>> net.weight.partition_spec
        PartitionSpec('x', None)

    Source: PyTorch's function of the same name.
    """
    with naming("distribute_module"):
        require_module(module)
        mesh = require_mesh(device_mesh)
        for name, function, count in (
            ("partition_fn", partition_fn, "(name, module, mesh)"),
            ("input_fn", input_fn, "(module, inputs, mesh)"),
            ("output_fn", output_fn, "(module, outputs, mesh)"),
        ):
            _require_function(function, name, count)
    module.to("spmdx")
    for name, each in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, each, mesh)
        with naming("distribute_module"):
            _replicate_rest(name, each, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, output: output_fn(m, output, mesh))
    return module


def _require_function(function: Any, name: str, arguments: str) -> None:
    if function is None:
        return
    wrong = not callable(function)
    if not wrong:
        try:
            inspect.signature(function).bind(None, None, None)
        except TypeError:
            wrong = True
    if wrong:
        raise ShardingError(
            f"{name} is {function!r}. Expected a function of three arguments. Write "
            f"def {name}{arguments}."
        )


def _replicate_rest(name: str, module: torch.nn.Module, mesh: Mesh) -> None:
    """Marks whole what ``partition_fn`` has not marked in this module itself."""
    own = {**module._parameters, **module._buffers}
    tensors = {f"{name}.{leaf}".removeprefix("."): t for leaf, t in own.items() if t is not None}
    for path, tensor in tensors.items():
        if hasattr(tensor, "placements") and hasattr(tensor, "device_mesh"):
            raise ShardingError(
                f"partition_fn has made {path} a DTensor. Expected a tensor on device 'spmdx'. "
                "Call spmdx.distribute_tensor in place of torch's."
            )
    rest = {path: (...,) for path, tensor in tensors.items() if annotation_of(tensor) is None}
    mark_all(tensors, mesh, rest)
