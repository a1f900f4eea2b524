# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the format of torch.distributed.checkpoint, for any number of devices."""

import os
from collections.abc import Mapping
from typing import Any

import torch

from spmdx._checkpoint.agree import agree_on_call
from spmdx._checkpoint.background import SaveFuture, raise_unseen, start, wait_for_last
from spmdx._checkpoint.format.folder import absolute
from spmdx._checkpoint.load import Unmatched, load_into
from spmdx._checkpoint.safetensors.load import load_safetensors
from spmdx._checkpoint.safetensors.save import save_safetensors
from spmdx._checkpoint.save import snapshot, write
from spmdx._checkpoint.together import channel
from spmdx.errors import CheckpointError, naming

__all__ = [
    "CheckpointError",
    "RngState",
    "SaveFuture",
    "Unmatched",
    "async_save",
    "load",
    "load_safetensors",
    "rng_state",
    "save",
    "save_safetensors",
]


def save(state: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Write ``state`` to the folder ``path``: as a whole, or not at all.

    Every process calls it, and threads take turns. Each distinct shard is written once, by one
    process that holds it; no tensor is put together. The folder is in place when it returns; a
    checkpoint that was there is replaced, and stays if the save fails or is killed.

    Args:
        state: a dict of tensors, numbers, texts, lists, dicts, and objects with ``state_dict()``
            such as modules and optimizers, nested as you like.
        path: on a file system that all processes share.

    Raises:
        CheckpointError: an entry cannot be stored, files cannot be written, ``path`` holds
            something else, or an earlier :func:`async_save` failed.

    Example:
        >>> import tempfile, torch, spmdx
        >>> layer = torch.nn.Linear(16, 16).to("spmdx")
        >>> _ = spmdx.mark_sharding(layer.weight, spmdx.get_1d_mesh("data"), ("data", None))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spmdx.checkpoint.save({"model": layer, "step": 7}, folder + "/7")
        ...     state = {"model": layer.state_dict(), "step": 0}
        ...     _ = spmdx.checkpoint.load(state, folder + "/7")
        >>> state["step"]
        7

    Source: the files are those of ``torch.distributed.checkpoint``, which loads them too.
    """
    with naming("save"), channel() as exchange:
        agree_on_call(exchange, "save", lambda: _target_of_save(path))
        write(snapshot(state, False, exchange), absolute(path), exchange)


def async_save(state: Mapping[str, Any], path: str | os.PathLike) -> SaveFuture:
    """Copy what this process writes, and write it in the background while training goes on.

    One save runs at a time: the next one waits for it. The interpreter ends after it.

    Args:
        state: as for :func:`save`.
        path: as for :func:`save`.

    Returns:
        A future; its ``result()`` waits for the save and raises what went wrong. An error that
        nobody asked for is raised by the next save.

    Raises:
        CheckpointError: an entry cannot be stored, or the save before failed.

    Example:
        >>> import tempfile, torch, spmdx
        >>> x = torch.ones(8).to("spmdx")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saving = spmdx.checkpoint.async_save({"x": x}, folder + "/1")
        ...     _ = x.mul_(2)
        ...     saving.result()
        ...     _ = spmdx.checkpoint.load({"x": x}, folder + "/1")
        >>> x[0].item()
        1.0
    """
    with naming("async_save"), channel() as exchange:
        agree_on_call(exchange, "async_save", lambda: _target_of_save(path))
        target, copied = absolute(path), snapshot(state, True, exchange)
        return start(lambda: write(copied, target, exchange), f"the save to {target}")


def load(state: Mapping[str, Any], path: str | os.PathLike, *, strict: bool = True) -> Unmatched:
    """Fill ``state`` in place from the checkpoint at ``path``, whatever it was saved on.

    Tensors keep their mesh and spec: each process reads the boxes that its devices hold. Other
    values are replaced in their dict or list. Objects get them through ``load_state_dict``; an
    optimizer may be new. All bytes are checked before anything changes.

    Args:
        state: as for :func:`save`, with tensors of the saved shapes and dtypes.
        path: what was given to :func:`save`, or to ``torch.distributed.checkpoint.save``.
        strict: refuse names that only one side has.

    Returns:
        The names that were passed over; none if ``strict``.

    Raises:
        CheckpointError: there is no checkpoint, its files are damaged, or it does not fit.

    Example:
        >>> import tempfile, torch, spmdx
        >>> x = spmdx.mark_sharding(torch.ones(8).to("spmdx"), spmdx.get_1d_mesh(), ("axis0",))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spmdx.checkpoint.save({"x": x}, folder)
        ...     target = {"x": torch.zeros(8), "more": 1}
        ...     spmdx.checkpoint.load(target, folder, strict=False)
        Unmatched(missing=['more'], unexpected=[])
        >>> target["x"].sum().item()
        8.0
    """
    with naming("load"), channel() as exchange:
        wait_for_last()
        return load_into(state, path, strict, exchange)


class RngState:
    """The random state of the program, as an object that can be saved; see :func:`rng_state`."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        device = torch.get_device_module("spmdx")
        return {"cpu": torch.get_rng_state(), "spmdx": device.get_rng_state()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        torch.set_rng_state(state["cpu"])
        torch.get_device_module("spmdx").set_rng_state(state["spmdx"])


def rng_state() -> RngState:
    """The random generators of the device and of the CPU, as an entry of a checkpoint.

    Returns:
        An object that :func:`save` reads and that :func:`load` sets. That of process 0 is saved.

    Example:
        >>> import tempfile, torch, spmdx
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     spmdx.checkpoint.save({"rng": spmdx.checkpoint.rng_state()}, folder)
        ...     first = torch.rand(2, device="spmdx").tolist()
        ...     _ = spmdx.checkpoint.load({"rng": spmdx.checkpoint.rng_state()}, folder)
        ...     torch.rand(2, device="spmdx").tolist() == first
        True
    """
    return RngState()


def _target_of_save(path: str | os.PathLike) -> str:
    """Where to, unless an error of the save before is still to be raised."""
    target = absolute(path)
    raise_unseen()
    return str(target)
