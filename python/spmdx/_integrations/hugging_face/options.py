# SPDX-License-Identifier: Apache-2.0
"""Options of accelerate that mean nothing here, or something else: named, with what to do."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from accelerate.utils import DistributedDataParallelKwargs

from spmdx.errors import ShardingError

# By option of Accelerator: the values that change nothing, and what to do about another one.
_ACCELERATOR: dict[str, tuple[tuple[Any, ...], str]] = {
    "cpu": ((False,), "accelerate.Accelerator(cpu=True) runs on the CPU; leave it out here."),
    "deepspeed_plugin": ((None,), "Give fsdp_plugin=FullyShardedDataParallelPlugin()."),
    "deepspeed_plugins": ((None,), "Give fsdp_plugin=FullyShardedDataParallelPlugin()."),
    "megatron_lm_plugin": ((None,), "Give parallelism_config=ParallelismConfig(tp_size=...)."),
    "torch_tp_plugin": ((None,), "Give parallelism_config=ParallelismConfig(tp_size=...)."),
    "mixed_precision": (
        (None, "no", "bf16"),
        "Gradients are not scaled here. Give mixed_precision='bf16'.",
    ),
}
# By variable of a launcher: the options that go before it, and the values that are honoured.
_SAID_BY_LAUNCHERS = {
    "ACCELERATE_MIXED_PRECISION": (("mixed_precision",), ("no", "bf16")),
    "ACCELERATE_DYNAMO_BACKEND": (
        ("dynamo_backend", "dynamo_plugin"),
        ("no", "eager", "aot_eager"),
    ),
}
# By variable of a launcher that chooses another device, or another frame.
_VARIABLES = ("ACCELERATE_USE_CPU", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")
_OF_LAUNCHER = "Mend the config of the launcher, or unset it."
EFFICIENT_LOADING = "FSDP_CPU_RAM_EFFICIENT_LOADING"
_READ_BY_ALL = "Every process reads the checkpoint. Leave it out."
# By option of the plugin.
_FSDP: dict[str, str] = {
    "mixed_precision_policy": "Give Accelerator(mixed_precision='bf16').",
    "activation_checkpointing_offload": "Checkpointed inputs stay on their devices.",
    "cpu_ram_efficient_loading": _READ_BY_ALL,
}
# By field of ParallelismConfig.
_SIZES: dict[str, str] = {
    "cp_size": "A sequence is cut by spmdx.mark_sharding(x, mesh, (None, axis)). Set it to 1.",
    "sp_size": "A sequence is cut by spmdx.mark_sharding(x, mesh, (None, axis)). Set it to 1.",
}


def refuse(option: str, value: Any, mend: str, expected: str = "it left out") -> None:
    """Raise ShardingError for an option that means something which is not done here."""
    raise ShardingError(f"{option} is {value!r}. Expected {expected}. {mend}")


def check_accelerator(options: Mapping[str, Any]) -> None:
    """Raises ShardingError for an argument of ``Accelerator`` that cannot be honoured."""
    for name, (harmless, mend) in _ACCELERATOR.items():
        value = options.get(name, harmless[0])
        value = str(value) if name == "mixed_precision" and value is not None else value
        if value not in harmless:
            refuse(name, value, mend)
    for name in _VARIABLES:
        if is_set(name):
            refuse(name, os.environ[name], _OF_LAUNCHER)
    for name, (before, known) in _SAID_BY_LAUNCHERS.items():
        said = os.environ.get(name, "no")
        if all(options.get(it) is None for it in before) and said.lower() not in known:
            refuse(name, said, _OF_LAUNCHER, "one of " + ", ".join(map(repr, known)))
    _check_compiling(options.get("dynamo_backend"), options.get("dynamo_plugin"))
    for handler in options.get("kwargs_handlers") or ():
        _check_handler(handler)


def is_set(variable: str) -> bool:
    """Whether a variable of the environment says "true"."""
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


def _check_compiling(backend: Any, plugin: Any) -> None:
    chosen = str(getattr(plugin, "backend", backend) or "NO").rsplit(".", 1)[-1].upper()
    if chosen not in ("NO", "EAGER", "AOT_EAGER"):
        mend = "Steps are planned as a whole without it. Leave it out, or write 'eager'."
        refuse("dynamo_backend", chosen.lower(), mend, "'no', 'eager' or 'aot_eager'")


def _check_handler(handler: Any) -> None:
    if isinstance(handler, DistributedDataParallelKwargs):
        hook = getattr(handler.comm_hook, "value", handler.comm_hook)
        if hook != "no":
            refuse("comm_hook", hook, "Gradients are summed as the plan says. Leave it out.")
    elif type(handler).__name__ not in (
        "AutocastKwargs",
        "ProfileKwargs",
        "InitProcessGroupKwargs",
    ):
        name = type(handler).__name__
        refuse("kwargs_handlers", name, "Only AutocastKwargs and ProfileKwargs act here.")


def check_loading_of_parameters(is_efficient: Any) -> None:
    """Raises ShardingError where one process is to read a checkpoint for all."""
    if is_efficient:
        refuse("fsdp_plugin.cpu_ram_efficient_loading", is_efficient, _READ_BY_ALL)


def check_fsdp(plugin: Any) -> None:
    """Raises ShardingError for a field of the plugin that cannot be honoured."""
    for name, mend in _FSDP.items():
        value = getattr(plugin, name, None)
        if value:
            refuse(f"fsdp_plugin.{name}", value, mend)
    offload = plugin.cpu_offload
    if offload and (getattr(offload, "offload_params", None) or _moves(offload)):
        mend = "Parameters stay on their devices. Cut them by more of these."
        refuse("fsdp_plugin.cpu_offload", offload, mend)
    strategy = _strategy(plugin)
    if strategy.startswith(("HYBRID", "_HYBRID")):
        mend = "Give parallelism_config=ParallelismConfig(dp_replicate_size=, dp_shard_size=)."
        refuse("fsdp_plugin.sharding_strategy", strategy, mend)


def _moves(offload: Any) -> bool:
    """Whether it is a policy of version 2, which says by its class that parameters move."""
    return offload is True or type(offload).__name__ == "CPUOffloadPolicy"


def _strategy(plugin: Any) -> str:
    """The strategy of version 1 by its name; that of version 2 is a bool."""
    said = plugin.sharding_strategy or plugin.reshard_after_forward
    if isinstance(said, bool) or said is None:
        return "FULL_SHARD" if said is not False else "SHARD_GRAD_OP"
    return str(getattr(said, "name", said)).upper()


def keeps_gathered(plugin: Any) -> bool:
    """Whether parameters are not gathered a second time, for the backward pass."""
    return _strategy(plugin) == "SHARD_GRAD_OP"


def cuts(plugin: Any) -> bool:
    """Whether the plugin cuts parameters at all."""
    return plugin is not None and _strategy(plugin) != "NO_SHARD"


def check_sizes(config: Any, devices: int) -> None:
    """Raises ShardingError for a ``ParallelismConfig`` that does not fit the devices."""
    for name, mend in _SIZES.items():
        value = getattr(config, name, 1)
        if value != 1:
            refuse(f"parallelism_config.{name}", value, mend, "1")
    if config.total_size not in (1, devices):
        raise ShardingError(
            f"parallelism_config has {config.total_size} devices, dp_replicate_size="
            f"{config.dp_replicate_size} x dp_shard_size={config.dp_shard_size} x tp_size="
            f"{config.tp_size}. Expected {devices}, all there are. Mend a size."
        )
    if getattr(config.tp_handler, "enable_async_tp", False):
        refuse("tp_handler.enable_async_tp", True, "When to communicate is planned. Leave it out.")


def check_loader(config: Any) -> None:
    """Raises ShardingError for a ``DataLoaderConfiguration`` that would cut the batch again."""
    if config.dispatch_batches:
        mend = "Every process loads the same batches. Leave it out."
        refuse("dispatch_batches", True, mend)


def class_names(said: str | Iterable[str] | None) -> list[str]:
    """Names of classes of layers, of a list or joined by commas."""
    if not said:
        return []
    return [n.strip() for n in (said.split(",") if isinstance(said, str) else said) if n.strip()]
