# SPDX-License-Identifier: Apache-2.0
"""Programs and configs of DeepSpeed: ``initialize`` and the engine, without DeepSpeed itself."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh, get_1d_mesh, require_mesh
from spmdx._integrations.deepspeed.config import read_config
from spmdx._integrations.deepspeed.engine import DeepSpeedEngine
from spmdx._integrations.deepspeed.optimizer import make_optimizer
from spmdx._integrations.deepspeed.schedules import make_schedule
from spmdx.data import ShardingSpec, device_loader
from spmdx.errors import ShardingError, naming

__all__ = ["DeepSpeedEngine", "initialize"]
DeepSpeedEngine.__module__ = __name__


def initialize(
    args: Any = None,
    model: torch.nn.Module | None = None,
    optimizer: Any = None,
    model_parameters: Any = None,
    training_data: Any = None,
    lr_scheduler: Any = None,
    mpu: None = None,
    collate_fn: Callable[[list], Any] | None = None,
    config: Mapping[str, Any] | str | os.PathLike | None = None,
    *,
    mesh: Mesh | None = None,
    axis: str = "data",
) -> tuple[DeepSpeedEngine, Any, Any, Any]:
    """Put a model and its optimizer onto a mesh, as a config of DeepSpeed says.

    Batches are global: of ``train_micro_batch_size_per_gpu`` rows for each device along ``axis``.

    Args:
        args: has ``deepspeed_config``, where ``config`` is None.
        model: moved to device "spmdx"; parameters that are marked already stay as they are.
        optimizer: one over the model's parameters, or a function of them; None: the config's.
        model_parameters: for the config's optimizer; None: those that require gradients.
        training_data: a data set, for a loader of global batches.
        lr_scheduler: one, or a function of the optimizer; None: the config's.
        mpu: to be left out: say by the mesh what is cut.
        collate_fn: of the loader.
        config: a dict, or the path of a JSON file.
        mesh: the devices; None: all of them along ``axis``.
        axis: the axis that cuts batches, and by the stage what ZeRO cuts.

    Returns:
        The engine, the optimizer, the loader and the scheduler; None for what there is not.

    Raises:
        ShardingError: a key of the config is not known or not done here, sizes do not fit, or an
            argument is of the wrong kind.

    Example:
        >>> import torch
        >>> config = {
        ...     "train_batch_size": 16,
        ...     "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        ...     "zero_optimization": {"stage": 1},
        ... }
        >>> engine, *_ = initialize(model=torch.nn.Linear(8, 8), config=config)
        >>> loss = engine(torch.ones(16, 8).to(engine.device)).square().mean()
        >>> _ = engine.backward(loss)
        >>> engine.step()
        >>> state = engine.optimizer.state[engine.module.weight]["exp_avg"]
        >>> engine.module.weight.partition_spec, state.partition_spec
        (PartitionSpec(None, None), PartitionSpec('data', None))

    Source: https://www.deepspeed.ai/docs/config-json
    """
    with naming("initialize"):
        if not isinstance(model, torch.nn.Module):
            raise ShardingError(
                f"model is a {type(model).__name__}. Expected a torch.nn.Module. Pass model=..."
            )
        if mpu is not None:
            raise ShardingError(
                "mpu is given. Expected None: a mesh says what is parallel. Mark the parameters, "
                'and pass mesh=spmdx.Mesh(range(8), (2, 4), ("data", "model")).'
            )
        mesh = get_1d_mesh(axis) if mesh is None else require_mesh(mesh)
        if axis not in mesh.axis_names:
            raise ShardingError(
                f"{mesh!r} has no axis {axis!r}. Expected one of {mesh.axis_names}. Pass axis=..."
            )
        said = config if config is not None else getattr(args, "deepspeed_config", None)
        read = read_config(said, mesh.shape()[axis])
        model = model.to("spmdx", read.dtype if read.dtype != torch.float32 else None)
        engine = DeepSpeedEngine(model, read, mesh, axis)
        made = _optimizer(engine, optimizer, model_parameters)
        engine.attach(made, None)
        if made is not None:
            engine.masters.put_into(made)
            if lr_scheduler is None and read.scheduler is not None:
                lr_scheduler = make_schedule(read.scheduler, made)
            elif callable(lr_scheduler) and not hasattr(lr_scheduler, "step"):
                lr_scheduler = lr_scheduler(made)
        engine.attach(made, lr_scheduler)
        return engine, made, _loader(engine, training_data, collate_fn), lr_scheduler


def _optimizer(engine: DeepSpeedEngine, given: Any, parameters: Any) -> Any:
    if given is not None and engine.config.optimizer is not None:
        raise ShardingError(
            "there is an optimizer, and one in the config. Expected one of them. Drop one."
        )
    if parameters is None:
        parameters = [parameter for _, parameter in engine.masters.pairs]
    if engine.config.optimizer is not None:
        return make_optimizer(engine.config.optimizer, parameters)
    if given is None or isinstance(given, torch.optim.Optimizer):
        return given
    return given(parameters)


def _loader(engine: DeepSpeedEngine, data: Any, collate_fn: Any) -> Any:
    """Global batches, shuffled alike in all processes."""
    if data is None:
        return None
    order = torch.Generator().manual_seed(0)
    loader: Any = torch.utils.data.DataLoader(
        data,
        engine.config.micro_batch_size * engine.world_size,
        shuffle=not isinstance(data, torch.utils.data.IterableDataset),
        generator=order,
        collate_fn=collate_fn,
        drop_last=engine.config.drop_last,
    )
    return device_loader(loader, engine.mesh, ShardingSpec(engine.mesh, (engine.axis,)))
