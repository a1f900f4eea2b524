# SPDX-License-Identifier: Apache-2.0
"""The engine that ``initialize`` returns: forward, backward, step, and checkpoints."""

import json
import os
from pathlib import Path
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh
from spmdx._annotate.sharding import get_annotation, mark_sharding
from spmdx._base.own_devices import NAMES
from spmdx._data.batches import map_tensors
from spmdx._integrations.deepspeed.config import Config
from spmdx._integrations.deepspeed.optimizer import Masters, Scaler, unscale_and_clip
from spmdx._modules.zero import Zero
from spmdx._program.step import mark_step
from spmdx._world import processes
from spmdx.checkpoint import load, save
from spmdx.errors import CheckpointError, ShardingError, naming

_LATEST = "latest"


class DeepSpeedEngine(torch.nn.Module):
    """A model and its optimizer, driven as DeepSpeed's engine is; ``initialize`` makes one.

    Example:
        >>> issubclass(DeepSpeedEngine, torch.nn.Module)
        True
    """

    def __init__(self, module: torch.nn.Module, config: Config, mesh: Mesh, axis: str):
        super().__init__()
        self.module, self.config, self.mesh, self.axis = module, config, mesh, axis
        self.zero = Zero(config.stage, mesh, axis, offload=config.offload)
        self.zero.mark_parameters(module.parameters())
        trained = [p for p in module.parameters() if p.requires_grad]
        self.masters = Masters(trained)
        for master, parameter in self.masters.pairs:
            if master is not parameter:
                self.zero.mark_master(master, parameter)
        self.scaler = Scaler(config.loss_scale)
        self.optimizer: Any = None
        self.lr_scheduler: Any = None
        self.micro_steps = self.global_steps = self.skipped_steps = 0
        self._norm: torch.Tensor | None = None

    def attach(self, optimizer: Any, lr_scheduler: Any) -> None:
        self.optimizer, self.lr_scheduler = optimizer, lr_scheduler

    # A step.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's; tensors on the device are cut on dim 0, floats get the model's dtype."""
        args, kwargs = map_tensors(self._placed, (args, kwargs))
        return self.module(*args, **kwargs)

    def _placed(self, _: Any, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type not in NAMES:
            return tensor
        if tensor.dim() and get_annotation(tensor) is None and tensor.is_leaf:
            mark_sharding(tensor, self.mesh, (self.axis, *(None,) * (tensor.dim() - 1)))
        half = self.config.dtype != torch.float32 and tensor.is_floating_point()
        return tensor.to(self.config.dtype) if half else tensor

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> torch.Tensor:
        """Add up gradients of the mean over micro batches; ``loss`` is that of one of them."""
        loss = loss / self.config.accumulation
        scaled = loss.float() * self.scaler.scale if self.scaler.scale != 1.0 else loss
        scaled.backward(retain_graph=retain_graph)
        self.masters.take_gradients()
        for master in self.masters.all:
            self.zero.mark_gradient(master)
        return loss

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the next ``step`` is the optimizer's."""
        return (self.micro_steps + 1) % self.config.accumulation == 0

    def step(self) -> None:
        """End a micro batch, and after the last one clip, step and schedule; cuts the step."""
        if self.is_gradient_accumulation_boundary():
            self._step()
        self.micro_steps += 1
        mark_step()

    def _step(self) -> None:
        if self.optimizer is None:
            raise ShardingError(
                "step has no optimizer. Expected one in the config or as an argument. Write "
                'config={"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, ...}.'
            )
        scales = self.config.loss_scale is not None
        if scales or self.config.clipping:
            masters = self.masters.all
            self._norm = unscale_and_clip(masters, self.scaler.scale, self.config.clipping)
        overflow = scales and self._norm is not None and not self._norm.isfinite().item()
        if not overflow:
            self.optimizer.step()
            self.zero.mark_state(self.optimizer)
            self.masters.give_values()
            if self.lr_scheduler is not None:
                self.lr_scheduler.step()
        self.masters.drop_gradients()
        self.scaler.update(overflow)
        self.skipped_steps += overflow
        self.global_steps += 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.masters.drop_gradients()

    # What it is asked.

    @property
    def device(self) -> torch.device:
        return torch.device("spmdx")

    @property
    def world_size(self) -> int:
        return self.mesh.shape()[self.axis]

    @property
    def global_rank(self) -> int:
        return processes.process_index()

    @property
    def loss_scale(self) -> float:
        return self.scaler.scale

    def train_batch_size(self) -> int:
        """Rows of a step."""
        return self.config.train_batch_size

    def train_micro_batch_size_per_gpu(self) -> int:
        """Rows of a device at a time."""
        return self.config.micro_batch_size

    def gradient_accumulation_steps(self) -> int:
        return self.config.accumulation

    def gradient_clipping(self) -> float:
        return self.config.clipping

    def zero_optimization_stage(self) -> int:
        return self.config.stage

    def get_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_global_grad_norm(self) -> float | None:
        """Before clipping; None where gradients were not clipped. Reading it waits for the step."""
        return None if self._norm is None else self._norm.item()

    # Checkpoints.

    def _state(self, optimizer: bool, schedule: bool) -> dict[str, Any]:
        state: dict[str, Any] = {"module": self.module}
        if optimizer and self.optimizer is not None:
            state["optimizer"] = self.optimizer
            state["scaler"] = self.scaler
            apart = self.masters.apart
            state["masters"] = {str(i): m.detach() for i, m in enumerate(apart)}
        if schedule and self.lr_scheduler is not None:
            state["lr_scheduler"] = self.lr_scheduler
        return state

    def save_checkpoint(
        self,
        save_dir: str | os.PathLike,
        tag: str | None = None,
        client_state: dict[str, Any] | None = None,
        save_latest: bool = True,
    ) -> None:
        """Write a folder of spmdx.checkpoint; every process calls it.

        Args:
            save_dir: holds a folder for each tag, and a file that names the latest.
            tag: None: the number of the step.
            client_state: what JSON knows.
            save_latest: name it the latest.

        Raises:
            CheckpointError: something cannot be written.
        """
        with naming("save_checkpoint"):
            tag = tag or f"global_step{self.global_steps}"
            try:
                told = json.dumps(client_state or {})
            except TypeError as error:
                raise CheckpointError(
                    f"client_state cannot be saved: {error}. Expected what JSON knows: numbers, "
                    "texts, lists, dicts. Save tensors with spmdx.checkpoint.save."
                ) from error
            counts = [self.micro_steps, self.global_steps, self.skipped_steps]
            state = self._state(True, True) | {"counts": counts, "client_state": told}
            save(state, Path(save_dir) / tag)
            if save_latest and processes.process_index() == 0:
                new = Path(save_dir) / f"{_LATEST}.new"
                new.write_text(tag)
                new.replace(Path(save_dir) / _LATEST)
            processes.exchange(None, "saving a checkpoint")

    def load_checkpoint(
        self,
        load_dir: str | os.PathLike,
        tag: str | None = None,
        load_module_strict: bool = True,
        load_optimizer_states: bool = True,
        load_lr_scheduler_states: bool = True,
        load_module_only: bool = False,
    ) -> tuple[str | None, dict[str, Any]]:
        """Go on from what :meth:`save_checkpoint` wrote, on any number of devices.

        Returns:
            The path and the client state; ``(None, {})`` where there is no latest.

        Raises:
            CheckpointError: it does not fit, or cannot be read.
        """
        with naming("load_checkpoint"):
            latest = Path(load_dir) / _LATEST
            if tag is None and not latest.exists():
                return None, {}
            path = Path(load_dir) / (tag or latest.read_text().strip())
            own = not load_module_only
            state = self._state(own and load_optimizer_states, own and load_lr_scheduler_states)
            state |= {"counts": [0, 0, 0], "client_state": ""}
            _require_matched(load(state, path, strict=False), load_module_strict, path)
            if own:
                self.micro_steps, self.global_steps, self.skipped_steps = state["counts"]
            if self.optimizer is not None:
                self.zero.mark_state(self.optimizer)
            return str(path), json.loads(state["client_state"])


def _require_matched(unmatched: Any, strict: bool, path: Path) -> None:
    """Raise CheckpointError where something wanted is missing, or ``strict`` modules differ."""
    both = [*unmatched.missing, *unmatched.unexpected]
    lost = [name for name in both if strict and name.startswith("module.")]
    lost += [name for name in unmatched.missing if not name.startswith("module.")]
    if lost:
        raise CheckpointError(
            f"{path} does not fit: only one side has {', '.join(lost[:5])}. Expected the model and "
            "the optimizer as they were saved; what both have was read. Make them alike, or leave "
            "the optimizer out by load_module_only=True."
        )
