# SPDX-License-Identifier: Apache-2.0
"""What a strategy of Lightning does: one process drives all its devices, and batches are global."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh, get_1d_mesh, require_mesh
from spmdx._annotate.sharding import get_annotation, mark_sharding
from spmdx._base.own_devices import NAMES
from spmdx._data.batches import map_tensors
from spmdx._data.split import padded
from spmdx._integrations.lightning.options import refuse_options
from spmdx._integrations.lightning.places import PlacesOfStrategy
from spmdx._integrations.lightning.saving import SavingOfStrategy
from spmdx._integrations.plans import apply_plan, batch_entry
from spmdx._program.step import mark_step
from spmdx.data import ShardingSpec, batch_shard, device_loader
from spmdx.errors import naming


class StrategyOfDevices(SavingOfStrategy, PlacesOfStrategy):
    """All but the base class, which is Lightning's ``ParallelStrategy``."""

    runs_on_spmdx = True
    _materialize: Any  # Lightning's function for modules on the meta device

    def __init__(
        self,
        mesh: Mesh | None = None,
        plan: Mapping[str, Sequence[Any]] | str | None = None,
        batch_axes: Sequence[str] | None = None,
        *,
        minibatch: bool = False,
        save_distributed_checkpoint: bool = False,
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        **options: Any,
    ):
        with naming("SpmdxStrategy"):
            refuse_options(options)
            self._mesh = None if mesh is None else require_mesh(mesh)
            self._plan, self._batch_axes, self._minibatch = plan, batch_axes, minibatch
            self._entry = None if self._mesh is None else batch_entry(self._mesh, batch_axes)
        self._in_folder = save_distributed_checkpoint
        self._is_cut = True
        super().__init__(  # type: ignore[call-arg]
            accelerator=accelerator, checkpoint_io=checkpoint_io, precision_plugin=precision_plugin
        )

    @property
    def mesh(self) -> Mesh:
        """The devices; made when the trainer has said how many there are."""
        if self._mesh is None:
            self._mesh = get_1d_mesh("fsdp" if self._plan == "fsdp" else "data")
        return self._mesh

    @property
    def batch_sharding(self) -> ShardingSpec:
        """How dim 0 of the tensors of a batch is cut."""
        entry = self._entry or batch_entry(self.mesh, self._batch_axes)
        return ShardingSpec(self.mesh, entry, self._minibatch)

    # The model.

    @contextlib.contextmanager
    def tensor_init_context(self, empty_init: bool | None = None) -> Iterator[None]:
        """On the host, as elsewhere numbers would be drawn otherwise; empty on the meta device."""
        place = torch.device("meta") if empty_init else contextlib.nullcontext()
        with place, self.precision_plugin.tensor_init_context():
            yield

    def setup_environment(self) -> None:
        super().setup_environment()  # type: ignore[misc]
        self.set_world_ranks()
        self.lightning_module._device_mesh = self.mesh  # type: ignore[attr-defined]

    def model_to_device(self) -> None:
        module: Any = self.lightning_module  # type: ignore[attr-defined]
        type(self)._materialize(module, self.root_device)
        module.to(self.root_device)
        apply_plan(module, self.mesh, self._plan)
        if callable(own := getattr(module, "configure_sharding", None)):
            own(self.mesh)

    # Batches.

    @property
    def is_distributed(self) -> bool:
        return self._minibatch and self.distributed_sampler_kwargs["num_replicas"] > 1

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        parts, mine = batch_shard(self.mesh, self.batch_sharding.partition_spec)
        return {"num_replicas": parts, "rank": mine}

    def process_dataloader(self, dataloader: Any) -> Any:
        if not self._minibatch:
            return dataloader
        return device_loader(dataloader, self.mesh, self.batch_sharding)

    def batch_to_device(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        batch = super().batch_to_device(batch, *args, **kwargs)  # type: ignore[misc]
        sharding = self.batch_sharding

        def mark(_: Any, tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dim() and tensor.device.type in NAMES and get_annotation(tensor) is None:
                spec = padded(sharding.partition_spec, tensor.dim())
                mark_sharding(tensor, sharding.mesh, spec)
            return tensor

        map_tensors(mark, batch)
        return batch

    # Steps.

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if not self._is_cut:  # a batch whose gradients were only added up
            mark_step()
        self._is_cut = False

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        result = super().optimizer_step(*args, **kwargs)  # type: ignore[misc]
        mark_step()
        self._is_cut = True
        return result

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        return self._cut_after(super().validation_step(*args, **kwargs))  # type: ignore[misc]

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        return self._cut_after(super().test_step(*args, **kwargs))  # type: ignore[misc]

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        return self._cut_after(super().predict_step(*args, **kwargs))  # type: ignore[misc]

    @staticmethod
    def _cut_after(result: Any) -> Any:
        mark_step()
        return result

    def teardown(self) -> None:
        """The model stays on the devices, cut as it is."""
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        self._io.teardown()


def register_strategies(registry: Any, strategy: type) -> None:
    """Make it known by its names to the Trainer whose registry it is; once."""
    if "spmdx" not in registry:
        registry.register("spmdx", strategy, description="batches cut by all devices")
        about = "parameters cut as well"
        registry.register("spmdx_fsdp", strategy, description=about, plan="fsdp")
