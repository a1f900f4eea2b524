# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.fsdp.wrap: policies that say which modules are wrapped."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module is wrapped."""
    return True


def lambda_auto_wrap_policy(
    module: Module,
    recurse: bool,
    unwrapped_params: int,
    lambda_fn: Callable[[Module], bool],
) -> bool:
    """Modules that ``lambda_fn`` says yes to are wrapped.

    Args:
        module: the module in question.
        recurse: whether it is asked if to look into it.
        unwrapped_params: how many of its parameters are not in a wrapped module.
        lambda_fn: called with a module.

    Returns:
        Whether the module is wrapped, or what is in it is looked at.
    """
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    unwrapped_params: int,
    transformer_layer_cls: set[type[Module]],
) -> bool:
    """Modules of certain classes are wrapped.

    Args:
        module: the module in question.
        recurse: whether it is asked if to look into it.
        unwrapped_params: how many of its parameters are not in a wrapped module.
        transformer_layer_cls: the classes.

    Returns:
        Whether the module is wrapped, or what is in it is looked at.
    """
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    unwrapped_params: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Modules with many parameters are wrapped.

    Args:
        module: the module in question.
        recurse: whether it is asked if to look into it.
        unwrapped_params: how many of its parameters are not in a wrapped module.
        min_num_params: how many are many.
        force_leaf_modules: classes that are not looked into.
        exclude_wrap_modules: classes that are not wrapped.

    Returns:
        Whether the module is wrapped, or what is in it is looked at.
    """
    leaves = tuple(force_leaf_modules or (torch.nn.MultiheadAttention,))
    excluded = tuple(exclude_wrap_modules or (torch.nn.ModuleList, torch.nn.ModuleDict))
    large = unwrapped_params >= min_num_params
    return large and not isinstance(module, leaves if recurse else excluded)


def recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., Module],
    ignored_modules: set[Module] | None = None,
    ignored_params: set[torch.nn.Parameter] | None = None,
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Module, int]:
    """Wrap the modules that a policy says yes to, from the leaves up.

    Args:
        module: the outermost.
        auto_wrap_policy: one of this file's, or of the same form.
        wrapper_cls: called with a module and ``kwargs``.
        ignored_modules: what is neither wrapped nor looked into.
        ignored_params: what is not counted.
        only_wrap_children: whether ``module`` itself is left as it is.
        **kwargs: arguments of ``wrapper_cls``.

    Returns:
        The module, wrapped or not, and how many parameters are in wrapped ones.
    """
    ignored, left_out = ignored_modules or set(), ignored_params or set()
    counted = sum(p.numel() for p in module.parameters() if p not in left_out)
    if not auto_wrap_policy(module=module, recurse=True, unwrapped_params=counted):
        return module, 0
    wrapped = 0
    for name, child in list(module.named_children()):
        if child in ignored:
            continue
        made, inside = recursive_wrap(
            child, auto_wrap_policy, wrapper_cls, ignored, left_out, **kwargs
        )
        setattr(module, name, made)
        wrapped += inside
    rest = counted - wrapped
    wants = auto_wrap_policy(module=module, recurse=False, unwrapped_params=rest)
    if only_wrap_children or not wants:
        return module, wrapped
    return wrapper_cls(module, **kwargs), counted
