# SPDX-License-Identifier: Apache-2.0
"""Hugging Face accelerate: an ``Accelerator`` whose device is "spmdx"."""

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import accelerate
import torch
from accelerate.utils import DataLoaderConfiguration, FullyShardedDataParallelPlugin
from accelerate.utils import ParallelismConfig as _ParallelismConfig

from spmdx._annotate.mesh import Mesh
from spmdx._integrations.hugging_face import host, options, state
from spmdx._integrations.hugging_face.layout import layout_of
from spmdx._integrations.hugging_face.loader import Batches, Loader, Optimizer
from spmdx._world import processes
from spmdx.errors import naming

__all__ = ["Accelerator"]

_RANDOM_STATE = "random_state_spmdx.pkl"
_SYNC_STATES = "FSDP_SYNC_MODULE_STATES"  # the plugin would look for a GPU


class Accelerator(accelerate.Accelerator):
    """accelerate's ``Accelerator`` on device "spmdx": one program on all devices.

    Batches are global: a loader's ``batch_size`` is that of all devices together. Every process
    loads the same batches, of which it uploads what its devices hold. So ``num_processes`` is 1,
    and ``gather`` gives what it is given. A step ends when a prepared loader is asked for its next
    batch.

    Args:
        arguments: those of ``accelerate.Accelerator``. ``parallelism_config`` is a mesh of axes
            ``dp_replicate``, ``dp_shard`` and ``tp``; ``fsdp_plugin`` cuts parameters along
            ``dp_shard``. Without either, batches are cut over all devices.

    Attributes:
        mesh: the devices.

    Raises:
        ShardingError: an option means something that is not done here, or sizes do not fit.

    Example:
        >>> import torch
        >>> from spmdx.integrations.accelerate import Accelerator
        >>> accelerator = Accelerator()
        >>> loader = torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=8)
        >>> loader, model = accelerator.prepare(loader, torch.nn.Linear(4, 2))
        >>> for x in loader:
        ...     accelerator.backward(model(x).mean())
        >>> x.partition_spec, model.weight.grad.sum().item()
        (PartitionSpec('dp_replicate', None), 8.0)

    Source: https://github.com/huggingface/accelerate.
    """

    mesh: Mesh
    flag_tensor: torch.Tensor | None

    def __init__(self, *arguments: Any, **named: Any):
        signature = inspect.signature(accelerate.Accelerator.__init__)
        given = signature.bind(self, *arguments, **named).arguments
        given.pop("self")
        with naming("Accelerator"):
            options.check_accelerator(given)
            plugin, config = given.pop("fsdp_plugin", None), given.pop("parallelism_config", None)
            if plugin is None and options.is_set("ACCELERATE_USE_FSDP"):
                options.check_loading_of_parameters(options.is_set(options.EFFICIENT_LOADING))
                with _without(_SYNC_STATES):
                    plugin = FullyShardedDataParallelPlugin()
            if config is None and options.is_set("ACCELERATE_USE_PARALLELISM_CONFIG"):
                config = _ParallelismConfig()
            loading = given.setdefault("dataloader_config", None) or DataLoaderConfiguration()
            options.check_loader(loading)
            loading.dispatch_batches = False
            given["dataloader_config"] = loading
            self._layout = layout_of(config, plugin)
        self.mesh = self._layout.mesh
        self._batches = Batches(self._layout)
        state.start()
        with _without("ACCELERATE_USE_FSDP", "ACCELERATE_USE_PARALLELISM_CONFIG"):
            super().__init__(**given)
        state.own(self.state)

    def place(self, batch: Any) -> Any:
        """Lay a batch on the devices, as a prepared loader does: its rows are cut.

        Args:
            batch: tensors, in dicts, lists, tuples and what else torch's pytree knows.

        Returns:
            The same structure on device "spmdx".

        Example:
            >>> import torch
            >>> from spmdx.integrations.accelerate import Accelerator
            >>> Accelerator().place({"x": torch.ones(16)})["x"].partition_spec
            PartitionSpec('dp_replicate')
        """
        return self._batches.place(batch)

    def prepare_model(
        self,
        model: torch.nn.Module,
        device_placement: bool | None = None,
        evaluation_mode: bool = False,
    ) -> torch.nn.Module:
        """accelerate's; parameters are marked as the configs say."""
        is_new = not getattr(model, "_is_accelerate_prepared", False)
        prepared = super().prepare_model(model, device_placement, evaluation_mode)
        if is_new and device_placement is not False and self.device_placement:
            with naming("prepare"):
                self._layout.shard(self.unwrap_model(prepared, keep_torch_compile=False))
                self._checkpoint_activations(prepared)
        return prepared

    def _checkpoint_activations(self, model: torch.nn.Module) -> None:
        if not getattr(self._layout.plugin, "activation_checkpointing", False):
            return
        enable: Any = getattr(model, "gradient_checkpointing_enable", None)
        if enable is None:
            mend = "Call torch.utils.checkpoint in the model, and leave it out."
            expected = "a model with gradient_checkpointing_enable()"
            options.refuse("fsdp_plugin.activation_checkpointing", True, mend, expected)
        enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def prepare_data_loader(
        self,
        data_loader: torch.utils.data.DataLoader,
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Any = None,
    ) -> torch.utils.data.DataLoader:
        """accelerate's; batches are cut by rows, and a step ends with each."""
        if getattr(data_loader, "_is_accelerate_prepared", False):
            return super().prepare_data_loader(data_loader, device_placement)
        prepared = super().prepare_data_loader(data_loader, device_placement)
        self._dataloaders.remove(prepared)
        on_devices = self.device_placement if device_placement is None else device_placement
        made: Any = Loader.of(prepared, self._batches if on_devices else None)
        self._dataloaders.append(made)
        return made

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """accelerate's; what is left is cut as before."""
        rest = super().skip_first_batches(dataloader, num_batches)
        return Loader.of(rest, dataloader._batches) if isinstance(dataloader, Loader) else rest

    def prepare_optimizer(
        self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None
    ) -> torch.optim.Optimizer:
        """accelerate's; its state is saved whole."""
        return Optimizer.of(super().prepare_optimizer(optimizer, device_placement))

    def get_state_dict(self, model: torch.nn.Module, unwrap: bool = True) -> dict[str, Any]:
        """The state of a model, whole on the host. All processes have to call it."""
        return host.state_of(self.unwrap_model(model) if unwrap else model)

    def save_state(self, *arguments: Any, **named: Any) -> str:
        """accelerate's, with the state of the device's generator. All processes have to call it."""
        folder = super().save_state(*arguments, **named)
        if self.is_main_process:
            host.save_random_state(os.path.join(folder, _RANDOM_STATE))
        self.wait_for_everyone()
        return folder

    def load_state(self, input_dir: str | None = None, *arguments: Any, **named: Any) -> None:
        """accelerate's, with the state of the device's generator where it was saved."""
        found: list[str] = []
        hook = self.register_load_state_pre_hook(lambda models, folder: found.append(folder))
        try:
            super().load_state(input_dir, *arguments, **named)
        finally:
            hook.remove()
        host.load_random_state(os.path.join(found[0], _RANDOM_STATE))

    def wait_for_everyone(self) -> None:
        """Return when all processes have called it."""
        processes.exchange(0, "wait_for_everyone")

    def check_trigger(self) -> bool:
        """Whether ``set_trigger`` was called in some process since the last time."""
        flag = self.flag_tensor is not None and self.flag_tensor.item() >= 1
        self.flag_tensor = None
        return any(processes.exchange(bool(flag), "check_trigger"))

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """A block that process 0 runs before the others."""
        with _first(self.is_main_process):
            yield

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """A block that the first process of each machine runs before the others."""
        with _first(self.is_local_main_process):
            yield


@contextmanager
def _first(is_first: bool) -> Iterator[None]:
    if not is_first:
        processes.exchange(0, "main_process_first")
    yield
    if is_first:
        processes.exchange(0, "main_process_first")


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """A block in which variables of the environment are unset."""
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)
