# SPDX-License-Identifier: Apache-2.0
"""torch_xla._internal.tpu: there are no TPUs here."""

from spmdx._xla.device.absent import absent

_ADVICE = "There are no TPUs here. Ask torch_xla.runtime.device_type() first."


def num_available_chips() -> int:
    """The number of TPUs: 0."""
    return 0


__getattr__ = absent(
    "torch_xla._internal.tpu",
    {name: _ADVICE for name in ("version", "get_worker_ips", "task_id", "worker_id")},
)
