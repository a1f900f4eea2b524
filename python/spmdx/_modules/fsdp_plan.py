# SPDX-License-Identifier: Apache-2.0
"""The fully sharded plan that a model of the transformers library brings, as partition specs."""

from collections.abc import Mapping
from typing import Any

import torch

from spmdx._modules.marking import cut_besides
from spmdx.errors import ShardingError

Spec = tuple[str | None, ...]
AXIS = "fsdp"
_STYLES = ("free_full_weight", "keep_full_weight")


def brings_fsdp_plan(module: torch.nn.Module) -> bool:
    """Whether the module says which parts of it are to be fully sharded."""
    plan: Any = getattr(module, "fsdp_plan", None)
    return isinstance(plan, Mapping) and bool(plan)


def with_fsdp(module: torch.nn.Module, specs: Mapping[str, Spec], n: int) -> dict[str, Spec]:
    """Specs of all parameters: each cut by ``fsdp``, too, on its largest dim that is left.

    The styles of a plan say how long weights stay gathered, which is one budget here
    (``spmdx.set_gather_budget``); what is cut are all parameters, as there.

    Args:
        module: a model with an ``fsdp_plan``.
        specs: of parameters that another axis cuts.
        n: how many parts the axis makes.

    Raises:
        ShardingError: a style is not known.

    Source: transformers, ``base_model_fsdp_plan`` of its configs.
    """
    plan: Any = module.fsdp_plan
    for pattern, style in plan.items():
        if style not in _STYLES:
            raise ShardingError(
                f"the fsdp_plan of {type(module).__name__} gives {pattern!r} the style {style!r}. "
                f"Expected one of {', '.join(_STYLES)}. Write the plan as a dict of partition "
                "specs instead."
            )
    named = module.named_parameters(remove_duplicate=False)
    whole = {name: (p, specs.get(name, (None,) * p.dim())) for name, p in named}
    return {name: cut_besides(spec, p.shape, AXIS, n) for name, (p, spec) in whole.items()}
