# SPDX-License-Identifier: Apache-2.0
"""What a strategy of Lightning does: one process drives all its devices, and batches are global."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh, get_1d_mesh, require_mesh
from spmdx._annotate.sharding import get_annotation, mark_sharding
from spmdx._base.own_devices import NAMES
from spmdx._data.batches import map_tensors
from spmdx._data.split import padded
from spmdx._integrations import frame_processes
from spmdx._integrations.lightning import checkpoint as files
from spmdx._integrations.lightning.options import on_device, refuse_options, require_nodes
from spmdx._integrations.plans import apply_plan, batch_entry
from spmdx._program.step import mark_step
from spmdx._world import devices, processes
from spmdx.data import ShardingSpec, batch_shard, device_loader
from spmdx.errors import ShardingError, naming


class StrategyOfDevices:
    """All but the base class, which is Lightning's ``ParallelStrategy``."""

    runs_on_spmdx = True
    _rank_zero: Any  # Lightning's rank_zero_only
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

    # Where things are.

    @property
    def root_device(self) -> torch.device:
        return torch.device("spmdx")

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        return [self.root_device] * devices.own_count() if self._said_devices else None

    @parallel_devices.setter
    def parallel_devices(self, said: Any) -> None:
        self._said_devices = bool(said)

    @property
    def global_rank(self) -> int:
        return processes.process_index()

    @property
    def world_size(self) -> int:
        return processes.process_count()

    @property
    def local_rank(self) -> int:
        return self.global_rank % (self.world_size // self.num_nodes)

    @property
    def node_rank(self) -> int:
        return self.global_rank // (self.world_size // self.num_nodes)

    @property
    def num_nodes(self) -> int:
        return getattr(self, "_num_nodes", 1)

    @num_nodes.setter
    def num_nodes(self, num_nodes: int) -> None:
        with naming("Trainer"):
            require_nodes(num_nodes)
        self._num_nodes = num_nodes

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    def set_world_ranks(self) -> None:
        self._rank_zero.rank = self.global_rank

    @property
    def accelerator(self) -> Any:
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Any) -> None:
        if accelerator is not None and accelerator.name() != "spmdx":
            raise ShardingError(
                f"the strategy runs on device 'spmdx', and the accelerator is "
                f"{type(accelerator).__name__}. Expected that of spmdx. Write "
                'Trainer(accelerator="spmdx").'
            )
        self._accelerator = accelerator

    @property
    def precision_plugin(self) -> Any:
        return super().precision_plugin  # type: ignore[misc]

    @precision_plugin.setter
    def precision_plugin(self, plugin: Any) -> None:
        with naming("Trainer"):
            self._precision_plugin = on_device(plugin)

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

    # Processes.

    def barrier(self, name: str | None = None) -> None:
        processes.exchange(None, f"barrier {name or ''} of Lightning")

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return frame_processes.broadcast(obj, src, "broadcast of Lightning")

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return frame_processes.decide(decision, all, "a decision of Lightning")

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        return self._global_value(tensor, "reduce")

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        return self._global_value(tensor, "all_gather")

    def _global_value(self, value: Any, function: str) -> Any:
        """Tensors on the device are those of all processes already."""
        on_device = isinstance(value, torch.Tensor) and value.device.type in NAMES
        if self.world_size > 1 and not on_device:
            raise ShardingError(
                f"{function} of {type(value).__name__} {value!r}, of which each process has its "
                "own. Expected a tensor on device 'spmdx', which is global. Move it there, or "
                "exchange it with torch.distributed."
            )
        return value

    # Checkpoints.

    restore_checkpoint_after_setup = True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        held = self.lightning_module.state_dict()  # type: ignore[attr-defined]
        return held if self._in_folder else self._whole(held)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        held = super().optimizer_state(optimizer)  # type: ignore[misc]
        return held if self._in_folder else files.on_host(held)

    def _whole(self, held: dict[str, Any]) -> dict[str, Any]:
        """Tensor by tensor on the host, read by every process and kept by process 0."""
        for name in list(held):
            whole = files.on_host(held[name])
            held[name] = whole if self.is_global_zero else None
        return held

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        filepath = self.broadcast(filepath)
        if self._in_folder:
            if storage_options is not None:
                raise TypeError(
                    f"storage_options is {storage_options!r}. Expected None: a folder is written "
                    "by spmdx.checkpoint. Use save_distributed_checkpoint=False."
                )
            files.save_folder(checkpoint, Path(filepath), self._io)
            return
        checkpoint = files.on_host(checkpoint)
        super().save_checkpoint(checkpoint, filepath, storage_options)  # type: ignore[misc]

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        path, io = Path(self.broadcast(checkpoint_path)), self._io
        if not files.is_folder(path):
            return io.load_checkpoint(path, weights_only=weights_only)
        module: Any = self.lightning_module  # type: ignore[attr-defined]
        rest = io.load_checkpoint(path / files.REST, weights_only=weights_only)
        optimizers: list = self.optimizers  # type: ignore[attr-defined]
        strict = module.strict_loading
        return files.load_folder(rest, path, module, optimizers, strict)

    @property
    def _io(self) -> Any:
        """What reads and writes files, and so says what of them is trusted."""
        return self.checkpoint_io  # type: ignore[attr-defined]

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        if checkpoint["state_dict"]:
            self.lightning_module.load_state_dict(  # type: ignore[attr-defined]
                checkpoint["state_dict"], strict=strict
            )

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        optimizers: list = self.optimizers  # type: ignore[attr-defined]
        for optimizer, held in zip(optimizers, checkpoint["optimizer_states"], strict=False):
            files.load_optimizer(optimizer, held)

    def teardown(self) -> None:
        """The model stays on the devices, cut as it is."""
        self.precision_plugin.teardown()
        self.accelerator.teardown()
        self._io.teardown()
