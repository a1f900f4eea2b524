# SPDX-License-Identifier: Apache-2.0
"""The parallel styles of torch.distributed.tensor.parallel, read as specs and layouts."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from spmdx.errors import ShardingError

Layouts = tuple[Any, ...]
_STYLES = (
    "ColwiseParallel",
    "RowwiseParallel",
    "SequenceParallel",
    "PrepareModuleInput",
    "PrepareModuleOutput",
    "PrepareModuleInputOutput",
)


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a style says of one module, in placements along the axis that it is for.

    Attributes:
        dims: by the name of a parameter, the dim that is cut; None: it is whole.
        inputs: of positional arguments, in turn, how they come and how they are wanted.
        named_inputs: the same of arguments by name.
        outputs: of results, in turn, how they come and how they are wanted.
        exact: whether there have to be as many arguments and results as placements.
    """

    dims: dict[str, int | None]
    inputs: tuple[Layouts, ...] = ()
    named_inputs: dict[str, Layouts] = dataclasses.field(default_factory=dict)
    outputs: tuple[Layouts, ...] = ()
    exact: bool = False


def reading_of(style: Any, module: torch.nn.Module, name: str) -> list[Reading]:
    """What ``style`` says of ``module``, which messages call ``name``.

    Raises:
        ShardingError: it is no style that is known, or not for a module of this class.
    """
    readers: dict[str, Callable[..., list[Reading]]] = {
        "ColwiseParallel": _colwise,
        "RowwiseParallel": _rowwise,
        "SequenceParallel": _sequence,
        "PrepareModuleInput": _inputs,
        "PrepareModuleOutput": _outputs,
        "PrepareModuleInputOutput": _both,
    }
    known = [cls.__name__ for cls in type(style).__mro__ if cls.__name__ in _STYLES]
    if not known or type(style).__name__ not in _STYLES:
        what = f", a subclass of {known[0]}, which does more than is seen" if known else ""
        raise ShardingError(
            f"the plan gives {name!r} {style!r}{what}. Expected one of {', '.join(_STYLES)}. Mark "
            "its parameters with spmdx.nn.shard_module instead."
        )
    readings = readers[known[0]](style, module, name)
    for reading in readings:
        pairs = (*reading.inputs, *reading.named_inputs.values(), *reading.outputs)
        for placement in (placement for pair in pairs for placement in pair):
            _require_placement(placement, style, name)
    return readings


def _require_placement(placement: Any, style: Any, name: str) -> None:
    if placement is None:
        return
    if not hasattr(placement, "is_shard") or placement.is_partial():
        raise ShardingError(
            f"{type(style).__name__} of {name!r} has the layout {placement!r}. Expected Shard(dim) "
            "or Replicate(): values are whole ones, and summands stay within a plan. Write "
            "Replicate()."
        )


def _dims(module: torch.nn.Module, style: str, name: str, linear: int, table: int) -> dict:
    """The dim of the weight, and of the bias, by the class of the module."""
    if isinstance(module, torch.nn.Linear):
        weight = linear
    elif isinstance(module, torch.nn.Embedding):
        weight = table
    else:
        raise ShardingError(
            f"the plan gives {name!r}, a {type(module).__name__}, the style {style}. Expected a "
            "torch.nn.Linear or a torch.nn.Embedding. Mark its parameters with "
            "spmdx.nn.shard_module instead."
        )
    found: dict[str, int | None] = {"weight": weight}
    if getattr(module, "bias", None) is not None:
        found["bias"] = 0 if style == "ColwiseParallel" else None
    return found


def _colwise(style: Any, module: torch.nn.Module, name: str) -> list[Reading]:
    dims = _dims(module, "ColwiseParallel", name, 0, 1)
    return [_of_layer(style, dims, style.desired_input_layouts)]


def _rowwise(style: Any, module: torch.nn.Module, name: str) -> list[Reading]:
    from torch.distributed.tensor import Replicate, Shard

    dims = _dims(module, "RowwiseParallel", name, 1, 0)
    wanted = Shard(-1) if isinstance(module, torch.nn.Linear) else Replicate()
    return [_of_layer(style, dims, (wanted,))]


def _of_layer(style: Any, dims: dict[str, int | None], wanted: Layouts) -> Reading:
    inputs = tuple(zip(style.input_layouts, wanted, strict=True))
    return Reading(dims, inputs, {}, tuple((placement,) for placement in style.output_layouts))


def _sequence(style: Any, module: torch.nn.Module, name: str) -> list[Reading]:
    (cut,) = style.sequence_sharding
    dims: dict[str, int | None] = {n: None for n, _ in module.named_parameters(recurse=False)}
    return [Reading(dims, ((cut,),), {}, ((cut,),))]


def _inputs(style: Any, module: torch.nn.Module, name: str) -> list[Reading]:
    given = style.input_layouts or ()
    wanted = style.desired_input_layouts or ()
    by_name = {
        key: (placement, style.desired_input_kwarg_layouts.get(key))
        for key, placement in style.input_kwarg_layouts.items()
    }
    return [Reading({}, tuple(zip(given, wanted, strict=True)), by_name, (), bool(given))]


def _outputs(style: Any, module: torch.nn.Module, name: str) -> list[Reading]:
    pairs = zip(style.output_layouts, style.desired_output_layouts, strict=True)
    return [Reading({}, (), {}, tuple(pairs), True)]


def _both(style: Any, module: torch.nn.Module, name: str) -> list[Reading]:
    inputs = _inputs(style.prepare_module_input, module, name)
    return inputs + _outputs(style.prepare_module_output, module, name)
