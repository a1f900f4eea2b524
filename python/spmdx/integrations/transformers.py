# SPDX-License-Identifier: Apache-2.0
"""The ``Trainer`` of Hugging Face transformers on device "spmdx"."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import transformers
import transformers.trainer as _module
import transformers.training_args as _arguments

from spmdx._integrations.hugging_face import host
from spmdx._integrations.hugging_face.arguments import adopt
from spmdx._world import processes
from spmdx.integrations.accelerate import Accelerator

__all__ = [
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "Trainer",
    "TrainerMixin",
    "TrainingArguments",
    "TrainingArgumentsMixin",
]

_RANDOM_STATE = "rng_state_spmdx.pth"


class TrainerMixin:
    """Makes a trainer that derives from ``transformers.Trainer`` train on device "spmdx".

    Write it first: ``class Mine(TrainerMixin, SFTTrainer)``. See :class:`Trainer`.
    """

    args: Any
    accelerator: Any
    optimizer: Any
    model: Any
    state: Any
    _fsdp: Any = None
    _is_made = False

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.args.fsdp, self._is_made = self._fsdp, True

    def create_accelerator_and_postprocess(self) -> None:
        """transformers', with an Accelerator of spmdx."""
        adopt(self.args)
        if not self._is_made:
            self._fsdp = self.args.fsdp
        plugin = self.args.fsdp_plugin_args
        if plugin is not None and plugin.get("sync_module_states"):
            plugin = {**plugin, "sync_module_states": False}  # it would look for a GPU
        with (
            mock.patch.object(_module, "Accelerator", Accelerator),
            _setting(self.args, "fsdp_plugin_args", plugin),
        ):
            super().create_accelerator_and_postprocess()  # type: ignore[misc]
        if not self._is_made:
            # The layout has it. The rest of __init__ would look for a process for each device.
            self.args.fsdp = False

    def _prepare_input(self, data: Any) -> Any:
        return self.accelerator.place(data)

    def training_step(self, *arguments: Any, **named: Any) -> torch.Tensor:
        """transformers'; a loss that is not finite is replaced on the device."""
        loss = super().training_step(*arguments, **named)  # type: ignore[misc]
        if not self._filters:
            return loss
        steps = 1 + self.state.global_step - self._globalstep_last_logged  # type: ignore[attr-defined]
        return torch.where(torch.isfinite(loss), loss, self._tr_loss / steps)  # type: ignore[attr-defined]

    # To look at each loss would end a step and wait for it: `training_step` does the same unseen.
    _filters = False

    def _run_epoch(self, *arguments: Any, **named: Any) -> Any:
        self._filters = self.args.logging_nan_inf_filter
        with _setting(self.args, "logging_nan_inf_filter", False):
            return super()._run_epoch(*arguments, **named)  # type: ignore[misc]

    def _maybe_log_save_evaluate(self, *arguments: Any, **named: Any) -> Any:
        with _setting(self.args, "logging_nan_inf_filter", self._filters):
            return super()._maybe_log_save_evaluate(*arguments, **named)  # type: ignore[misc]

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """transformers'. All processes have to call it; the first one writes."""
        super().save_model(output_dir, _internal_call)  # type: ignore[misc]
        processes.exchange(0, "save_model")

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        whole = host.state_of(self.model) if state_dict is None else host.on_host(state_dict)
        super()._save(output_dir, state_dict=whole)  # type: ignore[misc]

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        super()._save_checkpoint(*arguments, **named)  # type: ignore[misc]
        processes.exchange(0, "save_checkpoint")

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        whole = self.optimizer.state_dict()  # in all processes; the first one writes it
        with mock.patch.object(self.optimizer, "state_dict", lambda: whole):
            super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]

    def _save_rng_state(self, output_dir: str) -> None:
        if self.args.should_save:
            super()._save_rng_state(output_dir)  # type: ignore[misc]
            host.save_random_state(os.path.join(output_dir, _RANDOM_STATE))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)  # type: ignore[misc]
        if checkpoint is not None:
            host.load_random_state(os.path.join(checkpoint, _RANDOM_STATE))


class TrainingArgumentsMixin:
    """Makes arguments that derive from ``transformers.TrainingArguments`` know what the device can.

    Write it first: ``class MyConfig(TrainingArgumentsMixin, SFTConfig)``. Only ``bf16`` needs it,
    on a machine without a GPU; otherwise a :class:`Trainer` takes the plain ones.
    """

    def _validate_args(self) -> None:
        # They look for a GPU that has bf16. On this device every op has it.
        with mock.patch.object(_arguments, "is_torch_bf16_gpu_available", lambda: True):
            super()._validate_args()  # type: ignore[misc]


@dataclass
class TrainingArguments(TrainingArgumentsMixin, transformers.TrainingArguments):
    """transformers' ``TrainingArguments``, with ``bf16`` on every machine.

    Example:
        >>> import tempfile
        >>> from spmdx.integrations.transformers import TrainingArguments
        >>> TrainingArguments(output_dir=tempfile.mkdtemp(), bf16=True).mixed_precision
        'bf16'
    """


@dataclass
class Seq2SeqTrainingArguments(TrainingArgumentsMixin, transformers.Seq2SeqTrainingArguments):
    """transformers' ``Seq2SeqTrainingArguments``, as :class:`TrainingArguments`."""


class Trainer(TrainerMixin, transformers.Trainer):
    """transformers' ``Trainer``, which trains on all devices of spmdx.

    Batches are global: ``per_device_train_batch_size`` is the number of rows of a batch on all
    devices together, so a run means the same on any number of them. ``parallelism_config`` is the
    mesh; ``fsdp`` and ``fsdp_config`` cut parameters. Checkpoints are those of transformers.

    Args:
        arguments: those of ``transformers.Trainer``.

    Raises:
        ShardingError: an option means something that is not done here, or sizes do not fit.

    Example:
        >>> import tempfile, torch
        >>> from spmdx.integrations.transformers import Trainer, TrainingArguments
        >>> class Line(torch.nn.Linear):
        ...     def forward(self, x, labels):
        ...         return {"loss": (super().forward(x)[:, 0] - labels).square().mean()}
        >>> rows = [{"x": torch.ones(4), "labels": torch.tensor(2.0)}] * 16
        >>> arguments = TrainingArguments(
        ...     output_dir=tempfile.mkdtemp(), report_to=[], disable_tqdm=True, max_steps=2
        ... )
        >>> trainer = Trainer(model=Line(4, 1), args=arguments, train_dataset=rows)
        >>> trainer.train().global_step
        {'train_runtime': ...}
        2
        >>> trainer.model.weight.device.type
        'spmdx'

    Source: https://github.com/huggingface/transformers.
    """


class Seq2SeqTrainer(TrainerMixin, transformers.Seq2SeqTrainer):
    """transformers' ``Seq2SeqTrainer``, as :class:`Trainer`."""


@contextmanager
def _setting(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)
