# SPDX-License-Identifier: Apache-2.0
"""Layout: the mesh that the configs of accelerate ask for, and how models and batches lie on it."""

import re
from dataclasses import dataclass
from typing import Any

import torch

from spmdx import runtime
from spmdx._annotate.annotation import annotate, handle_for
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.sharding import mark_sharding
from spmdx._integrations.hugging_face import options
from spmdx._modules.marking import cut_besides
from spmdx._modules.tp_plan import specs_of
from spmdx._program.gathering import set_gather_budget
from spmdx.data import ShardingSpec
from spmdx.errors import ShardingError

REPLICATE, SHARD, TENSOR = "dp_replicate", "dp_shard", "tp"
AXES = (REPLICATE, SHARD, TENSOR)


@dataclass(frozen=True)
class Layout:
    """A mesh of axes ``dp_replicate``, ``dp_shard`` and ``tp``, of those that there are.

    Attributes:
        mesh: the devices.
        plugin: what the FSDP plugin says besides, or None.
    """

    mesh: Mesh
    plugin: Any = None

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """The axes that cut the rows of a batch."""
        return tuple(axis for axis in self.mesh.axis_names if axis != TENSOR)

    @property
    def batch_spec(self) -> ShardingSpec:
        """How a tensor of a batch lies, of any rank above 0."""
        return ShardingSpec(self.mesh, (self.batch_axes,) if self.batch_axes else ())

    def shard(self, model: torch.nn.Module) -> None:
        """Mark the parameters of a model that is on device "spmdx"."""
        axes = self.mesh.axis_names
        along_tensor = _of_plan(model) if TENSOR in axes else {}
        ignored = _ignored(model, self.plugin)
        _require_layers(model, self.plugin)
        specs = {}
        by_id: dict[int, tuple[str | None, ...]] = {}
        named = dict(model.named_parameters(remove_duplicate=False))
        for name, spec in along_tensor.items():
            by_id[id(named[name])] = spec
        for name, parameter in model.named_parameters():
            spec = by_id.get(id(parameter), (None,) * parameter.dim())
            if SHARD in axes and id(parameter) not in ignored:
                spec = cut_besides(spec, parameter.shape, SHARD, self.mesh.shape()[SHARD])
            specs[name] = (parameter, spec)
        handles = [(p, handle_for(p, self.mesh, spec, n)) for n, (p, spec) in specs.items()]
        for parameter, handle in handles:
            annotate(parameter, handle)
        for buffer in model.buffers():
            mark_sharding(buffer, self.mesh, (None,) * buffer.dim())


def _of_plan(model: torch.nn.Module) -> dict[str, Any]:
    """By name, the specs that the model's own plan asks for; ShardingError where it has none."""
    if not getattr(model, "tp_plan", None):
        raise ShardingError(
            f"tp_size is above 1, and {type(model).__name__} brings no tp_plan. Expected a model "
            "of the transformers library with one. Set tp_size to 1."
        )
    return specs_of(model, TENSOR)


def _ignored(model: torch.nn.Module, plugin: Any) -> set[int]:
    """Who the parameters are that ``ignored_modules`` excepts."""
    said = getattr(plugin, "ignored_modules", None)
    if not said:
        return set()
    if isinstance(said, str):
        matches = re.compile(said).fullmatch
        said = [module for name, module in model.named_modules() if matches(name)]
    return {id(p) for module in said for p in module.parameters()}


def _require_layers(model: torch.nn.Module, plugin: Any) -> None:
    """Raises ShardingError where a class of layers is named that the model has not."""
    wanted = options.class_names(getattr(plugin, "transformer_cls_names_to_wrap", None))
    have = {type(module).__name__ for module in model.modules()}
    for name in wanted:
        if name not in have:
            layers = sorted(n for n in have if "Layer" in n or "Block" in n)
            raise ShardingError(
                f"transformer_cls_names_to_wrap names {name!r}. Expected classes of layers of "
                f"{type(model).__name__}, like {', '.join(layers[:3])}. Mend the name."
            )


def layout_of(config: Any, plugin: Any) -> Layout:
    """The layout that a ``ParallelismConfig`` and an FSDP plugin ask for; either may be None.

    Raises:
        ShardingError: what they say is not done here, or does not fit the devices.
    """
    devices = runtime.global_runtime_device_count()
    sizes = dict.fromkeys(AXES, 1)
    if plugin is not None:
        options.check_fsdp(plugin)
    if config is not None:
        options.check_sizes(config, devices)
        sizes = {axis: getattr(config, f"{axis}_size") for axis in AXES}
    if all(size == 1 for size in sizes.values()):
        sizes[SHARD if options.cuts(plugin) else REPLICATE] = devices
    elif options.cuts(plugin) and sizes[SHARD] == 1:
        options.refuse(
            "parallelism_config.dp_shard_size",
            1,
            "Raise it, or leave the FSDP plugin out.",
            "an axis along which the FSDP plugin cuts",
        )
    if plugin is not None and options.keeps_gathered(plugin):
        set_gather_budget(None)
    names = [axis for axis in AXES if sizes[axis] > 1] or [REPLICATE]
    mesh = Mesh(range(devices), tuple(sizes[axis] for axis in names), tuple(names))
    return Layout(mesh, plugin)
