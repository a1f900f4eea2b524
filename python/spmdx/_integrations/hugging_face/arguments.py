# SPDX-License-Identifier: Apache-2.0
"""``TrainingArguments``, of which some choose a device or a way to communicate."""

import os
from typing import Any

from spmdx._integrations.hugging_face import options, state
from spmdx.errors import naming, warn

# By argument: the values that change nothing, and what to do about another one.
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "use_cpu": ((False, None), "transformers.Trainer trains on the CPU. Leave it out here."),
    "deepspeed": ((None,), "Write fsdp=True, which cuts parameters and what is held of them."),
    "fp16": ((False, None), "Gradients are not scaled here. Write bf16=True."),
    "use_liger_kernel": ((False, None), "Its kernels know no device but a GPU. Leave it out."),
}
_WITHOUT_EFFECT = (
    "ddp_backend",
    "ddp_find_unused_parameters",
    "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers",
    "ddp_static_graph",
)


def adopt(args: Any) -> None:
    """Make "spmdx" the device of ``args``.

    Raises:
        ShardingError: an argument that cannot be honoured.
    """
    with naming("Trainer"):
        for name, (harmless, mend) in _REFUSED.items():
            value = getattr(args, name, None)
            if value not in harmless:
                options.refuse(name, value, mend)
        config = args.fsdp_config if args.fsdp and isinstance(args.fsdp_config, dict) else {}
        for name in ("xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt"):
            if config.get(name):
                options.refuse(f"fsdp_config[{name!r}]", config[name], "Leave it out.")
        is_efficient = (args.fsdp_plugin_args or {}).get("cpu_ram_efficient_loading")
        if is_efficient:
            os.environ.pop(
                options.EFFICIENT_LOADING, None
            )  # the arguments set it for all that follows
        options.check_loading_of_parameters(is_efficient)
    for name in _WITHOUT_EFFECT:
        if getattr(args, name, None) is not None:
            warn(f"{name} has no effect: what is sent, and when, is planned. Leave it out.")
    args.distributed_state = state.own(state.start())
    args.__dict__["_setup_devices"] = args.distributed_state.device
    args._n_gpu = 0
