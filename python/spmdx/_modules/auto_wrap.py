# SPDX-License-Identifier: Apache-2.0
"""Which modules a policy of PyTorch's FSDP wraps."""

from typing import Any

import torch

from spmdx.errors import ShardingError


def wrapped_by(policy: Any, module: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules within ``module`` that the policy says yes to, inner ones first.

    Args:
        policy: of ``torch.distributed.fsdp.wrap``, or of its form: a function of ``module``,
            ``recurse`` and ``nonwrapped_numel``.
        module: the outermost, which is not asked for.

    Returns:
        Modules, each once.

    Raises:
        ShardingError: it is no policy, or gives modules options of their own.
    """
    if policy is None:
        return []
    if hasattr(policy, "_run_policy"):
        found = policy._run_policy(module, ignored_modules=set(), root_kwargs={})
        if given := next((options for options in found.values() if options), None):
            raise ShardingError(
                f"auto_wrap_policy gives a module the options {given!r}. Expected none: all get "
                "those of the call. Call spmdx.fully_shard on such modules first."
            )
        return [each for each in reversed(list(found)) if each is not module]
    if not callable(policy):
        raise ShardingError(
            f"auto_wrap_policy is {policy!r}. Expected a policy of torch.distributed.fsdp.wrap. "
            "Write ModuleWrapPolicy({torch.nn.TransformerEncoderLayer})."
        )
    chosen: list[torch.nn.Module] = []
    _walk(policy, module, chosen, set())
    return [each for each in chosen if each is not module]


def _walk(policy: Any, module: torch.nn.Module, chosen: list, seen: set) -> int:
    """How many elements of parameters lie in modules that were chosen at or below ``module``."""
    if module in seen:
        return 0
    seen.add(module)
    total = sum(p.numel() for p in module.parameters())
    if not policy(module=module, recurse=True, nonwrapped_numel=total):
        return 0
    inside = sum(_walk(policy, child, chosen, seen) for child in module.children())
    if policy(module=module, recurse=False, nonwrapped_numel=total - inside):
        chosen.append(module)
        return total
    return inside
