# SPDX-License-Identifier: Apache-2.0
"""torch_xla.experimental.spmd_fully_sharded_data_parallel: FSDPv2."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from spmdx._xla.mesh import Mesh, get_global_mesh
from spmdx.torch_xla.distributed.fsdp.wrap import recursive_wrap
from spmdx.torch_xla.distributed.spmd.xla_sharding import cut_longest_dim, mark_sharding


class SpmdFullyShardedDataParallel(torch.nn.Module):
    """A module whose parameters are cut along the axis "fsdp", and its output by rows.

    Args:
        module: of any class that has ``forward``.
        mesh: all devices, with an axis "fsdp"; None means the global mesh.
        shard_output: called with the output and the mesh; also by the
            modules inside that are wrapped. None cuts dim 0 of the first tensor.
        auto_wrap_policy: says which modules inside are wrapped as well.
        auto_wrapper_callable: called for these instead of this class.
        extra_data_axis: an axis that cuts the rows of the output besides "fsdp".

    Raises:
        ValueError: no mesh, or one without these axes.
        RuntimeError: it is wrapped already, or has no ``forward``.

    Example:
        >>> import torch
        >>> from spmdx.torch_xla import runtime as xr
        >>> from spmdx.torch_xla.distributed import spmd as xs
        >>> from spmdx.torch_xla.experimental import spmd_fully_sharded_data_parallel as fsdp
        >>> xr.use_spmd()
        >>> mesh = xs.get_1d_mesh("fsdp")
        >>> model = fsdp.SpmdFullyShardedDataParallel(torch.nn.Linear(16, 64), mesh=mesh)
        >>> xs.wrap_if_sharded(model.module.weight).sharding_spec
        '{devices=[8,1]0,1,2,3,4,5,6,7}'
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        mesh: Mesh | None = None,
        shard_output: Callable[[Any, Mesh], None] | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., Any] | None = None,
        extra_data_axis: str | None = None,
        **kwargs: Any,
    ):
        if isinstance(module, SpmdFullyShardedDataParallel):
            raise RuntimeError("the module is wrapped already. Wrap it once.")
        if type(module).forward is torch.nn.Module.forward:
            raise RuntimeError(
                f"a {type(module).__name__} has no forward. Expected a module that is called. "
                "Wrap its parts instead."
            )
        super().__init__()
        used = get_global_mesh() if mesh is None else mesh
        if used is None:
            raise ValueError("No mesh is given, and there is no global one. Pass mesh=….")
        names = used.axis_names or ()
        if "fsdp" not in names:
            raise ValueError("The mesh must have an axis named 'fsdp'.")
        if extra_data_axis is not None and extra_data_axis not in names:
            raise ValueError(f"The provided {extra_data_axis} axis is not in the mesh.")
        self._mesh, self._extra = used, extra_data_axis
        self._output = shard_output or self._cut_rows
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or type(self)
            options = {"mesh": used, "shard_output": shard_output, **kwargs}
            options["extra_data_axis"] = extra_data_axis
            recursive_wrap(module, auto_wrap_policy, wrapper, only_wrap_children=True, **options)
        self._orig_module = module.to("spmdx")
        for parameter in module.parameters():
            cut_longest_dim(parameter, used, "fsdp")

    @property
    def module(self) -> torch.nn.Module:
        """The module that is wrapped."""
        return self._orig_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self._orig_module(*args, **kwargs)
        self._output(output, self._mesh)
        return output

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._orig_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._orig_module[key]  # type: ignore[index]

    def _cut_rows(self, output: Any, mesh: Mesh) -> None:
        found = output
        if isinstance(output, tuple):
            found = output[0]
            warnings.warn("The output is a tuple: its first element is marked.", stacklevel=3)
        if not isinstance(found, torch.Tensor):
            raise RuntimeError(
                f"the output is a {type(output).__name__}. Expected a tensor, or a tuple of them. "
                "Pass shard_output=…, which marks what is to be."
            )
        rows = "fsdp" if self._extra is None else (self._extra, "fsdp")
        mark_sharding(found, mesh, (rows, *[None] * (found.dim() - 1)))
