# SPDX-License-Identifier: Apache-2.0
"""Modules: annotate many parameters at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._modules.distribute import distribute_module as distribute_module
from spmdx._modules.fsdp_plan import AXIS, brings_fsdp_plan, with_fsdp
from spmdx._modules.fully_sharded import Request, fully_shard_as
from spmdx._modules.marking import (
    axis_to_cut,
    mark_all,
    require_axis,
    require_module,
    require_plan,
    specs_by_pattern,
)
from spmdx._modules.parallel import parallelize_module as parallelize_module
from spmdx._modules.tp_plan import specs_of
from spmdx._modules.zero import zero_as
from spmdx._pipelines.pipeline import pipeline as pipeline
from spmdx._report.zero import zero_report as zero_report
from spmdx.errors import ShardingError, naming


def shard_module(
    module: torch.nn.Module,
    mesh: Mesh | None = None,
    plan: Mapping[str, Sequence[Any]] | str = MappingProxyType({}),
    axis: str = "model",
) -> torch.nn.Module:
    """Annotate parameters and buffers by the pattern of their names.

    Args:
        module: on device "spmdx".
        mesh: the devices; None means the global mesh.
        plan: from name patterns (as in the shell: ``*``, ``?``) to partition specs; the first
            pattern that matches a name counts; a :class:`spmdx.Sharding` does as well as a spec.
            ``"auto"`` is what a model of the transformers library brings: its tensor parallel plan
            along ``axis``; and where the mesh has an axis ``fsdp``, its fully sharded one along it.
        axis: the axis of the mesh that ``"auto"`` cuts along in tensor parallel.

    Returns:
        ``module`` itself.

    Raises:
        ShardingError: a pattern that matches nothing, a spec that does not fit, a tensor that it
            is for on another device; a model that brings no plan. Nothing is marked then.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("model")
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)).to("spmdx")
        >>> _ = spmdx.nn.shard_module(net, mesh, {"0.weight": ("model", None)})
        >>> net[0].weight.partition_spec
        PartitionSpec('model', None)
    """
    with naming("shard_module"):
        require_module(module)
        if isinstance(plan, str):
            _shard_by_its_plan(module, require_mesh(mesh), plan, axis)
            return module
        named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        require_plan(plan, list(named))
        mark_all(named, mesh, specs_by_pattern(plan, named))
    return module


def _shard_by_its_plan(module: torch.nn.Module, mesh: Mesh, plan: str, axis: str) -> None:
    if plan != "auto":
        raise ShardingError(
            f"the plan is {plan!r}. Expected 'auto', or a dict from patterns of names to partition "
            "specs. Write {'*.weight': ('data', None)}."
        )
    named = dict(module.named_parameters(remove_duplicate=False))
    is_fsdp = axis != AXIS and AXIS in mesh.axis_names and brings_fsdp_plan(module)
    if not is_fsdp:
        require_axis(mesh, axis)
    specs = specs_of(module, axis) if axis in mesh.axis_names else {}
    if is_fsdp:
        specs = with_fsdp(module, specs, mesh.shape()[AXIS])
    mark_all(named, mesh, specs)


def fully_shard(
    module: torch.nn.Module,
    mesh: Mesh | None = None,
    axis: str | None = None,
    *,
    reshard_after_forward: bool | None = None,
    mp_policy: Any = None,
    ignored_params: Iterable[torch.nn.Parameter] = (),
    shard_placement_fn: Callable[[torch.nn.Parameter], Any] | None = None,
    auto_wrap_policy: Any = None,
    extra_data_axis: str | None = None,
    **options: Any,
) -> torch.nn.Module:
    """Cut every parameter along one axis, on its largest dim that the axis divides.

    Args:
        module: on device "spmdx". What was said in calls on modules within it, for the same axis
            of the same mesh, holds.
        mesh: the devices; None means the global mesh.
        axis: an axis of ``mesh``; None means the only one, or ``"fsdp"``. What other axes cut of
            a parameter stays so.
        reshard_after_forward: False gathers the parameters of this call once, before the forward
            pass, and keeps them for the backward pass. Otherwise
            :func:`spmdx.set_gather_budget` says whether they are gathered again.
        mp_policy: a ``torch.distributed.fsdp.MixedPrecisionPolicy``: parameters are gathered and
            computed with in its ``param_dtype``, gradients summed in its ``reduce_dtype``, which
            may not be wider; both stay in their own dtype between steps.
        ignored_params: parameters that are not marked.
        shard_placement_fn: gives the placement of a parameter, ``Shard(dim)``, or None for the dim
            that is chosen here.
        auto_wrap_policy: a policy of ``torch.distributed.fsdp.wrap``: as if this function were
            called on the modules that it chooses first, with the same options.
        extra_data_axis: an axis that cuts the batch besides ``axis``: arguments of ``module``
            that are not annotated are cut along both, major first, on dim 0.
        options: ``offload_policy``, with its default. Any other value is refused.

    Returns:
        ``module`` itself; parameters without such a dim are replicated.

    Raises:
        ShardingError: the mesh has no such axis, a parameter has no shape yet or is on another
            device, a placement or an option is not known. Nothing is marked then.

    Example:
        >>> import torch, spmdx
        >>> net = torch.nn.Linear(8, 32).to("spmdx")
        >>> _ = spmdx.nn.fully_shard(net, spmdx.get_1d_mesh("fsdp"))
        >>> net.weight.partition_spec
        PartitionSpec('fsdp', None)

    Source: ZeRO, arXiv:1910.02054; the options are those of PyTorch's ``fully_shard``, the last
    two those of PyTorch/XLA's ``SpmdFullyShardedDataParallel``.
    """
    with naming("fully_shard"):
        require_module(module)
        request = Request(
            reshard_after_forward,
            mp_policy,
            ignored_params,
            shard_placement_fn,
            auto_wrap_policy,
            extra_data_axis,
            options,
        )
        devices = require_mesh(mesh)
        fully_shard_as(module, devices, axis_to_cut(mesh, devices, axis, "fsdp"), request)
    return module


def zero(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    mesh: Mesh | None = None,
    axis: str | None = None,
    stage: int = 1,
    min_size: int = 0,
    offload: bool = False,
) -> torch.nn.Module:
    """Cut the optimizer's state along the axis of the data, and by stage gradients and parameters.

    These are annotations alone: the loop, the optimizer and ``state_dict`` stay as they are, and a
    state saved in one stage loads into any. An update then computes with parts: gradients
    arrive by a reduce_scatter in place of an all_reduce, and parameters that are whole are
    gathered after it. :func:`zero_report` says what each stage holds.

    Args:
        model: on device "spmdx". What other axes cut of a parameter stays so.
        optimizer: of PyTorch, or another whose state of a parameter's shape is cut. Its state may
            be there already.
        mesh: the devices; None means the global mesh.
        axis: of ``mesh``; None means the only one, or ``"data"``.
        stage: 1: the optimizer's state. 2: gradients, too, also while they are accumulated.
            3: parameters, too, which are gathered where they are read. A later call replaces it.
        min_size: a parameter of fewer elements stays whole, with all that belongs to it.
        offload: whether the optimizer's state lies in the memory of the devices' hosts between
            updates. An update brings it to the devices parameter by parameter, and takes it back;
            ``explain().memory.host_bytes`` says how much it is. On the CPU both are one memory.

    Returns:
        ``model`` itself. A parameter is cut on its longest dim that the axis divides, or else on
        its longest one, in uneven parts; without one of as many elements as devices it is whole.

    Raises:
        ShardingError: no axis of the mesh, a parameter on another device or for another mesh, an
            optimizer of another model, a stage, a size or an offload that is none. Nothing is
            marked then.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> model = torch.nn.Linear(8, 32).to("spmdx")
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> _ = spmdx.nn.zero(model, optimizer, mesh, stage=1)
        >>> model(torch.ones(4, 8).to("spmdx")).sum().backward()
        >>> optimizer.step()
        >>> spmdx.get_sharding(optimizer.state[model.weight]["exp_avg"]).spec
        PartitionSpec('data', None)

    Source: ZeRO, arXiv:1910.02054; as annotations, arXiv:2004.13336; state on hosts,
    ZeRO-Offload, arXiv:2101.06840.
    """
    with naming("zero"):
        require_module(model)
        devices = require_mesh(mesh)
        cut = axis_to_cut(mesh, devices, axis, "data")
        zero_as(model, optimizer, devices, cut, stage, min_size, offload)
    return model


__all__ = [
    "distribute_module",
    "fully_shard",
    "parallelize_module",
    "pipeline",
    "shard_module",
    "zero",
    "zero_report",
]
