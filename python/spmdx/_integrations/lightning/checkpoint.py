# SPDX-License-Identifier: Apache-2.0
"""Lightning's checkpoints: one file that any strategy reads, or a folder of what processes hold."""

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from spmdx._base.own_devices import NAMES
from spmdx._data.batches import map_tensors
from spmdx._integrations.frame_processes import broadcast
from spmdx._integrations.plans import lie_as_parameters
from spmdx._world import processes
from spmdx.checkpoint import load, save
from spmdx.errors import CheckpointError

STATE, REST = "state", "lightning.ckpt"  # the tensors, and what Lightning notes beside them
_TOKEN = "spmdx"


def on_host(value: Any, keep: bool = True) -> Any:
    """The same structure on the CPU, tensor by tensor; every process reads, as they may be cut.

    Without ``keep`` there is None for each tensor.
    """

    def read(_: Any, tensor: torch.Tensor) -> torch.Tensor | None:
        whole = tensor.cpu() if tensor.device.type in NAMES else tensor
        return whole if keep else None

    return map_tensors(read, value)


def is_folder(path: Any) -> bool:
    return (Path(path) / REST).is_file()


def make_way(path: Path) -> None:
    """For a file, where a checkpoint is a folder; what is written would be moved into it."""
    if is_folder(path):
        shutil.rmtree(path)
    elif path.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder, and no checkpoint. Expected the path of a file. Name another one."
        )


def save_folder(checkpoint: dict[str, Any], folder: Path, io: Any) -> None:
    """Every process writes what it holds; process 0 writes the rest last, by Lightning's ``io``."""
    state = {"state_dict": checkpoint.pop("state_dict")}
    optimizers = checkpoint.pop("optimizer_states", None)
    for number, held in enumerate(optimizers or []):
        state[f"optimizer_{number}"] = held
    token = broadcast(uuid.uuid4().hex, 0, "saving a checkpoint of Lightning")
    rest = on_host(checkpoint)
    rest[_TOKEN] = {"token": token, "optimizers": None if optimizers is None else len(optimizers)}
    if processes.process_index() == 0:
        if folder.is_file():
            folder.unlink()
        folder.mkdir(parents=True, exist_ok=True)
    processes.exchange(None, "saving a checkpoint of Lightning")
    save({**state, "token": token}, folder / STATE)
    if processes.process_index() == 0:
        io.save_checkpoint(rest, folder / REST)


def load_folder(
    rest: dict[str, Any], path: Any, module: torch.nn.Module, optimizers: list, strict: bool
) -> dict[str, Any]:
    """Fill module and optimizers in place; what is left of the checkpoint."""
    told = rest.pop(_TOKEN)
    state: dict[str, Any] = {"state_dict": module, "token": ""}
    if told["optimizers"] is not None:
        rest["optimizer_states"] = []  # they are in their places
        if optimizers and len(optimizers) != told["optimizers"]:
            raise CheckpointError(
                f"{path} has {told['optimizers']} optimizers, the module {len(optimizers)}. "
                "Expected as many. Make them as they were when it was saved."
            )
        for number, each in enumerate(optimizers):
            if each.state_dict():  # not of what stands for none
                state[f"optimizer_{number}"] = each
    unmatched = load(state, Path(path) / STATE, strict=False)
    lost = [name for name in unmatched.missing if not name.startswith("state_dict.") or strict]
    lost += [name for name in unmatched.unexpected if name.startswith("state_dict.") and strict]
    if lost or state["token"] != told["token"]:
        why = f"only one side has {', '.join(lost[:5])}" if lost else "its two parts differ in age"
        raise CheckpointError(
            f"{path} does not fit: {why}. Expected the state as it was saved. Make the module as "
            "it was, or resume from another checkpoint; what was read is in the module already."
        )
    rest["state_dict"] = module.state_dict()  # for hooks that look at it, or change it
    return rest


def load_optimizer(optimizer: torch.optim.Optimizer, held: Mapping[str, Any]) -> None:
    """Its state; tensors of a parameter's shape lie as the parameter does."""
    optimizer.load_state_dict(dict(held))
    lie_as_parameters(optimizer)
