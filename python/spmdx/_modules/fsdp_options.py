# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's fully_shard takes besides a mesh: placements, and options said otherwise here."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from spmdx.errors import ShardingError

_OFFLOAD = "Parameters stay on the device: leave it out, and cut them by more devices."
_RESHARD = (
    "True leaves it to spmdx.set_gather_budget, False keeps gathered parameters for the backward "
    "pass. There is no gathering by a part of the devices in between."
)


@dataclasses.dataclass(frozen=True)
class Precision:
    """What a policy of mixed precision asks for; None leaves a dtype as it is.

    Attributes:
        parameters: the dtype in which they are gathered and computed with.
        reduced: the dtype in which gradients are summed.
        output: the dtype of what the forward pass returns.
        casts_inputs: whether arguments of the forward pass get the dtype of parameters.
    """

    parameters: torch.dtype | None = None
    reduced: torch.dtype | None = None
    output: torch.dtype | None = None
    casts_inputs: bool = True

    @property
    def changes(self) -> bool:
        """Whether it asks for anything."""
        return (self.parameters or self.reduced or self.output) is not None


def precision_of(policy: Any) -> Precision:
    """What a ``torch.distributed.fsdp.MixedPrecisionPolicy`` asks for, or None."""
    if policy is None:
        return Precision()
    names = ("param_dtype", "reduce_dtype", "output_dtype")
    if not all(hasattr(policy, name) for name in (*names, "cast_forward_inputs")):
        raise ShardingError(
            f"mp_policy is {policy!r}. Expected a torch.distributed.fsdp.MixedPrecisionPolicy. "
            "Write MixedPrecisionPolicy(param_dtype=torch.bfloat16)."
        )
    for name in names:
        dtype = getattr(policy, name)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ShardingError(
                f"the {name} of mp_policy is {dtype!r}. Expected a floating dtype, or None. Write "
                "torch.bfloat16."
            )
    parameters, reduced, output = (getattr(policy, name) for name in names)
    return Precision(parameters, reduced, output, bool(policy.cast_forward_inputs))


def require_sums(precision: Precision, named: Mapping[str, torch.Tensor]) -> None:
    """Raise ShardingError where gradients would have to be summed in a wider dtype than theirs."""
    wide = precision.reduced
    for name, parameter in named.items():
        if not parameter.is_floating_point():
            continue
        own = precision.parameters or parameter.dtype
        if wide is not None and torch.promote_types(own, wide) != own:
            raise ShardingError(
                f"the reduce_dtype of mp_policy is {wide}, gradients of {name} are computed in "
                f"{own}. Expected that dtype or a narrower one, since the plan sums them where "
                "that moves the fewest bytes: before they are widened. Leave reduce_dtype out, or "
                "leave out param_dtype as well."
            )


def keeps_gathered(reshard: Any) -> bool:
    """Whether ``reshard_after_forward`` asks that parameters are gathered once."""
    if reshard is not None and not isinstance(reshard, bool):
        raise ShardingError(
            f"reshard_after_forward is {reshard!r}. Expected True or False. {_RESHARD}"
        )
    return reshard is False


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise ShardingError for an option that means something which is not done here."""
    for name, value in options.items():
        if name != "offload_policy":
            raise ShardingError(
                f"{name!r} is no option. Expected one that help(spmdx.fully_shard) lists, or "
                "offload_policy. Leave it out."
            )
        if value is not None and type(value).__name__ != "OffloadPolicy":
            raise ShardingError(f"{name} is {value!r}. Expected none. {_OFFLOAD}")


def ids_of(parameters: Any) -> set[int]:
    """Who they are. Raises ShardingError for what is no collection of parameters."""
    found = list(parameters) if isinstance(parameters, Iterable) else [parameters]
    for each in found:
        if not isinstance(each, torch.Tensor):
            raise ShardingError(
                f"ignored_params holds {each!r}. Expected parameters themselves. Write "
                "{module.weight}."
            )
    return set(map(id, found))


def placed(named: Mapping[str, torch.nn.Parameter], place: Callable[..., Any]) -> dict[str, int]:
    """By name, the dims that placements cut which ``place`` gives of parameters.

    Raises:
        ShardingError: a placement that is no ``Shard`` of a dim that there is.
    """
    if not callable(place):
        raise ShardingError(
            f"shard_placement_fn is {place!r}. Expected a function of a parameter. Write "
            "lambda p: Shard(0)."
        )
    found = {}
    for name, parameter in named.items():
        placement = place(parameter)
        if placement is None:
            continue
        dim, rank = getattr(placement, "dim", None), parameter.dim()
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise ShardingError(
                f"the placement of {name} is {placement!r}. Expected Shard(dim) with one of its "
                f"{rank} dims, or None. Mend shard_placement_fn."
            )
        found[name] = dim % rank
    return found
