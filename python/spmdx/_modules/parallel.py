# SPDX-License-Identifier: Apache-2.0
"""parallelize_module: plans of torch.distributed.tensor.parallel, as annotations."""

import dataclasses
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotate, handle_for
from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._base.entries import entry_of
from spmdx._modules.marking import (
    added,
    axis_to_cut,
    beside,
    mark_all,
    require_axis,
    require_module,
    seen,
)
from spmdx._modules.styles import Reading, reading_of
from spmdx.errors import ShardingError, naming


def parallelize_module(
    module: torch.nn.Module,
    mesh: Mesh | None = None,
    plan: Any = None,
    *,
    axis: str | None = None,
    data_axis: str | Sequence[str] | None = None,
) -> torch.nn.Module:
    """Annotate a module as a plan of ``torch.distributed.tensor.parallel`` says.

    Values are global here: ``use_local_output`` changes nothing, and a program that divides by the
    number of devices between two layers leaves that out.

    Args:
        module: on device "spmdx".
        mesh: the devices; None means the global mesh.
        plan: ``ColwiseParallel``, ``RowwiseParallel``, ``SequenceParallel``,
            ``PrepareModuleInput``, ``PrepareModuleOutput``, ``PrepareModuleInputOutput``, or a
            dict of them by the names of modules, each part of which may have the shell's ``*`` and
            ``?``. Parameters are cut as the style says; arguments and results get its layouts,
            ``Shard(dim)`` or ``Replicate()``, as constraints.
        axis: the axis that the plan is for; None means the only axis of ``mesh``, or ``"tp"``.
        data_axis: the axes that cut dim 0 of arguments and results besides, as that of a batch.

    Returns:
        ``module`` itself. What other axes of the mesh cut of its parameters stays so.

    Raises:
        ShardingError: no such axis, a name that matches no module, a style or a layout that is
            not known, a parameter on another device. Nothing is marked then. Where the module is
            called: more or fewer arguments than ``PrepareModuleInput`` has layouts.

    Example:
        >>> import torch, spmdx
        >>> from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
        >>> mesh = spmdx.get_1d_mesh("model")
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)).to("spmdx")
        >>> plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
        >>> _ = spmdx.nn.parallelize_module(net, mesh, plan)
        >>> net[0].weight.partition_spec, net[1].weight.partition_spec
        (PartitionSpec('model', None), PartitionSpec(None, 'model'))

    Source: PyTorch's function of the same name; the layouts are Megatron-LM's, arXiv:1909.08053.
    """
    with naming("parallelize_module"):
        require_module(module)
        given, mesh = mesh, require_mesh(mesh)
        axis = axis_to_cut(given, mesh, axis, "tp")
        rows = tuple([data_axis] if isinstance(data_axis, str) else data_axis or ())
        for row in rows:
            require_axis(mesh, row, "data_axis")
        names = {m: n for n, m in module.named_modules()}
        found = [
            (each, reading)
            for each, style in _planned(module, plan)
            for reading in reading_of(style, each, names[each])
        ]
        specs, tensors = {}, {}
        for each, reading in found:
            for leaf, dim in reading.dims.items():
                name = f"{names[each]}.{leaf}".removeprefix(".")
                tensors[name] = getattr(each, leaf)
                specs[name] = added(beside(tensors[name], mesh, axis), dim, axis)
        mark_all(tensors, mesh, specs)
    for each, reading in found:
        Layout(mesh, axis, rows, reading, names[each]).put_on(each)
    return module


def _planned(module: torch.nn.Module, plan: Any) -> list[tuple[torch.nn.Module, Any]]:
    """Modules with their styles."""
    if not isinstance(plan, Mapping):
        return [(module, plan)]
    found = []
    for pattern, style in plan.items():
        matched = _matched(module, pattern) if isinstance(pattern, str) else []
        if not matched:
            names = [name for name, _ in module.named_modules() if name]
            raise ShardingError(
                f"{pattern!r} of the plan matches no module. Expected names like "
                f"{', '.join(map(repr, names[:3]))}. Mend the name, or drop it."
            )
        found += [(each, style) for each in matched]
    return found


def _matched(module: torch.nn.Module, pattern: str) -> list[torch.nn.Module]:
    """The modules that a name leads to, part by part."""
    if not pattern:
        return [module]
    part, _, rest = pattern.partition(".")
    children = (c for name, c in module.named_children() if fnmatch.fnmatch(name, part))
    return [found for child in children for found in _matched(child, rest)]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Hooks that constrain what goes into a module, and what comes out of it."""

    mesh: Mesh
    axis: str
    rows: tuple[str, ...]
    reading: Reading
    name: str

    @property
    def said(self) -> str:
        """What messages call the module."""
        return repr(self.name) if self.name else "the module"

    def put_on(self, module: torch.nn.Module) -> None:
        if self.reading.inputs or self.reading.named_inputs:
            module.register_forward_pre_hook(self.before, with_kwargs=True)
        if self.reading.outputs:
            module.register_forward_hook(self.after)

    def before(self, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments as they are wanted."""
        with naming("parallelize_module"):
            args = self._all(args, self.reading.inputs, "arguments")
            wanted = self.reading.named_inputs
            named = {k: self._laid(v, wanted.get(k, ()), k) for k, v in kwargs.items()}
        return args, named

    def after(self, module: torch.nn.Module, args: Any, output: Any) -> Any:
        """The results as they are wanted."""
        with naming("parallelize_module"):
            several = isinstance(output, tuple)
            values = output if several else (output,)
            others = set(map(id, (*args, *module.parameters(), *module.buffers())))
            new = [id(value) not in others for value in values]
            made = self._all(values, self.reading.outputs, "results", new)
        return made if several else made[0]

    def _all(
        self, values: tuple, layouts: Sequence[Any], what: str, new: Sequence[bool] = ()
    ) -> tuple:
        if self.reading.exact and layouts and len(values) != len(layouts):
            raise ShardingError(
                f"{self.said} has {len(values)} {what}, its plan {len(layouts)} layouts. "
                "Expected as many. Write None for those that are left as they are."
            )
        steps = (*layouts, *[()] * len(values))  # for those behind the last layout as well
        is_new = (*new, *[False] * len(values))
        return tuple(
            self._laid(value, steps[i], f"{what}[{i}]", is_new[i]) for i, value in enumerate(values)
        )

    def _laid(self, value: Any, steps: Sequence[Any], what: str, new: bool = False) -> Any:
        """``value`` as it comes, and then as it is wanted.

        One that is new is marked itself, of others a view, since their own marks are the user's.
        What is not on the device, where the module was moved off it, is left as it is.
        """
        if not isinstance(value, torch.Tensor) or not _C.is_lazy(value):
            return value
        wanted = [step for step in steps if step is not None]
        for placement in wanted[-1:] if new else dict.fromkeys(wanted):
            if placement == wanted[-1] or placement.is_shard():
                name = f"{what} of {self.said}"
                spec = self._spec(value, placement, name)
                value = value if new else seen(value)
                value = annotate(value, handle_for(value, self.mesh, spec, name))
        return value

    def _spec(self, value: torch.Tensor, placement: Any, name: str) -> tuple[Any, ...]:
        rank = value.dim()
        entries: list[list[str]] = [list(self.rows) if not at else [] for at in range(rank)]
        if placement.is_shard():
            if not -rank <= placement.dim < rank:
                raise ShardingError(
                    f"the layout of {name} is {placement!r}, its rank is {rank}. Expected a dim "
                    "that it has. Mend the plan."
                )
            entries[placement.dim].append(self.axis)
        return tuple(map(entry_of, entries))
