# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's fully_shard takes besides a mesh: placements, and options said otherwise here."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from spmdx._annotate.spec import cutting
from spmdx.errors import ShardingError

# By option: the values that change nothing here, and what to write for another one.
_OPTIONS: dict[str, tuple[tuple[Any, ...], str]] = {
    "reshard_after_forward": (
        (None, True),
        "Whether parameters are gathered again is one budget for all: call "
        "spmdx.set_gather_budget(None) for False, or give it a number of bytes.",
    ),
    "mp_policy": ((None,), 'Use torch.autocast("spmdx", torch.bfloat16), or module.to(dtype).'),
    "offload_policy": ((None,), "Parameters stay on the device. Cut them by more devices."),
    "auto_wrap_policy": ((None,), "Leave it out: when to gather what is planned for each op."),
}
_POLICIES = ("MixedPrecisionPolicy", "OffloadPolicy")


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise ShardingError for an option that means something which is not done here."""
    for name, value in options.items():
        if name not in _OPTIONS:
            raise ShardingError(
                f"{name!r} is no option. Expected one of {', '.join(_OPTIONS)}. Leave it out."
            )
        harmless, mend = _OPTIONS[name]
        if not any(value is same for same in harmless) and not _says_nothing(value):
            raise ShardingError(f"{name} is {value!r}. Expected it left out. {mend}")


def _says_nothing(policy: Any) -> bool:
    """Whether it is a policy of PyTorch as it is made without arguments."""
    kind = type(policy)
    is_theirs = kind.__module__.startswith("torch.distributed.fsdp")
    return is_theirs and kind.__name__ in _POLICIES and policy == kind()


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


def placed(
    named: Mapping[str, torch.nn.Parameter], place: Callable[..., Any], axis: str
) -> dict[str, tuple[str | None, ...]]:
    """The specs of the parameters for which ``place`` gives a placement.

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
        found[name] = cutting(rank, dim % rank, axis)
    return found
