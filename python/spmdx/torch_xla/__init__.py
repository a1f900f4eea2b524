# SPDX-License-Identifier: Apache-2.0
"""torch_xla on spmdx: programs written for PyTorch/XLA's SPMD run as they are.

``python -m spmdx.torch_xla train.py`` runs one; or a program calls :func:`install` before its own
imports. ``import torch_xla`` then finds this package, and the device "xla" is that of spmdx.
"""

import os

from spmdx import __version__ as __version__
from spmdx._xla import custom_ops
from spmdx._xla.device import device_name, finder
from spmdx.torch_xla import _XLAC, _backends, amp, debug, distributed, experimental, runtime
from spmdx.torch_xla.core import xla_model
from spmdx.torch_xla.torch_xla import (
    compile,
    device,
    device_count,
    devices,
    launch,
    manual_seed,
    real_devices,
    set_custom_compile_options,
    step,
    sync,
)

__all__ = [
    "_XLAC",
    "amp",
    "compile",
    "debug",
    "device",
    "device_count",
    "devices",
    "distributed",
    "experimental",
    "install",
    "launch",
    "manual_seed",
    "real_devices",
    "runtime",
    "set_custom_compile_options",
    "step",
    "sync",
    "xla_model",
]


# Settings of torch_xla that would change results or plans, and what to do instead.
_REFUSED = {
    "CONVERT_SHLO_TO_SHARDY": "Plans are made without either.",
    "XLA_AUTO_SPMD": "Mark tensors, or call auto_policy.",
    "XLA_USE_BF16": 'Write model.to(torch.bfloat16), or torch.autocast("xla").',
    "XLA_DOWNCAST_BF16": 'Write model.to(torch.bfloat16), or torch.autocast("xla").',
}


def install(*, shadow: bool = False) -> None:
    """Let ``import torch_xla`` find this package, and the device "xla" be that of spmdx.

    Args:
        shadow: whether to do so where another torch_xla is installed, too.

    Raises:
        RuntimeError: another one is installed and ``shadow`` is false, or a setting of the
            environment asks for what is not here.

    Example:
        >>> import spmdx.torch_xla
        >>> spmdx.torch_xla.install()  # doctest: +SKIP
        >>> import torch_xla  # doctest: +SKIP
        >>> torch_xla is spmdx.torch_xla  # doctest: +SKIP
        True
    """
    if finder.is_installed_elsewhere() and not shadow:
        raise RuntimeError(
            "torch_xla itself is installed here. Expected none, or to be told to stand in its "
            "place. Call spmdx.torch_xla.install(shadow=True) before torch_xla is imported."
        )
    _read_environment()
    finder.install()
    device_name.install()
    custom_ops.install()
    _backends.install()


def _read_environment() -> None:
    """What torch_xla's settings mean here."""
    runtime.set_device_type(os.environ.get("PJRT_DEVICE") or runtime.own.device_type())
    count = os.environ.get("CPU_NUM_DEVICES")
    if count and "SPMDX_NUM_DEVICES" not in os.environ:
        if not count.isdecimal() or not int(count):
            raise RuntimeError(
                f"CPU_NUM_DEVICES is {count!r}. Expected a number of devices, at least 1. Unset "
                "it, or write CPU_NUM_DEVICES=8."
            )
        runtime.own.set_device_count(int(count))
    for name, mend in _REFUSED.items():
        if os.environ.get(name, "0").lower() not in ("0", "false", ""):
            value = os.environ[name]
            raise RuntimeError(f"{name}={value} means nothing on spmdx. Unset it. {mend}")
