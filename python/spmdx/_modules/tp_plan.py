# SPDX-License-Identifier: Apache-2.0
"""The tensor parallel plan that a model of the transformers library brings, as partition specs."""

import re
from collections.abc import Mapping
from typing import Any

import torch

from spmdx._base.entries import cutting
from spmdx.errors import ShardingError

Spec = tuple[str | None, ...]

# By style: the dim of a weight, and of a bias, that is cut; None: the tensor stays whole.
# What the library's styles do to activations besides follows from how the weights lie.
_STYLES: dict[str, tuple[int | None, int | None]] = {
    **dict.fromkeys(("colwise", "colwise_gather_output", "colwise_rep", "packed_colwise"), (-2, 0)),
    **dict.fromkeys(
        ("rowwise", "rowwise_split_input", "rowwise_rep", "packed_rowwise"), (-1, None)
    ),
    "embedding_rowwise": (0, None),
    "embedding_colwise": (1, None),
    **dict.fromkeys(
        (
            "all_reduce",
            "local_params",
            "mla_kv_a_proj",
            "moe_identity_expert",
            "moe_tp_experts",
            "replicate",
            "replicated_with_grad_allreduce",
        ),
        (None, None),
    ),
}


def specs_of(module: torch.nn.Module, axis: str) -> dict[str, Spec]:
    """By the name of a parameter, the spec that the plan of a model asks for.

    Args:
        module: a model with a ``tp_plan``, from names of modules or parameters to styles; ``*``
            stands for the number of a layer.
        axis: the axis of the mesh that cuts.

    Returns:
        Specs of the parameters that are cut.

    Raises:
        ShardingError: there is no plan, a style is not known, or the plan fits no parameter.

    Source: transformers, ``base_model_tp_plan`` of its configs.
    """
    plan = _plan_of(module)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    found: dict[str, Spec] = {}
    for pattern, style in plan.items():
        if style not in _STYLES:
            raise ShardingError(
                f"the tp_plan of {type(module).__name__} gives {pattern!r} the style {style!r}. "
                f"Expected one of {', '.join(sorted(_STYLES))}. Write the plan as a dict of "
                "partition specs instead."
            )
        matches = re.compile(re.escape(pattern).replace(r"\*", r"\d+")).fullmatch
        for name, parameter in parameters.items():
            if matches(name) or matches(name.rpartition(".")[0]):
                spec = _spec(parameter, style, axis)
                if spec is not None:
                    found[name] = spec
    if not found:
        raise ShardingError(
            f"the tp_plan of {type(module).__name__} cuts none of its parameters. Expected names "
            f"like {', '.join(list(parameters)[:2])}. Write the plan as a dict of partition specs."
        )
    return found


def _plan_of(module: torch.nn.Module) -> Mapping[str, str]:
    plan: Any = getattr(module, "tp_plan", None)
    if not isinstance(plan, Mapping) or not plan:
        raise ShardingError(
            f"the plan is 'auto', and {type(module).__name__} brings none. Expected a model of the "
            "transformers library with a tp_plan. Write the plan as a dict of partition specs."
        )
    return plan


def _spec(parameter: torch.Tensor, style: str, axis: str) -> Spec | None:
    of_weight, of_bias = _STYLES[style]
    rank = parameter.dim()
    dim = of_bias if rank == 1 else of_weight
    if rank == 0 or dim is None:
        return None
    return cutting(rank, dim % rank, axis)
