# SPDX-License-Identifier: Apache-2.0
"""Strategies that are searched for: how a program for one device is best laid over many."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch

import spmdx._C as _C
from spmdx._auto.effects.apart import apart
from spmdx._auto.result import AutoPlan as AutoPlan
from spmdx._auto.result import Candidate as Candidate
from spmdx._auto.search import Search
from spmdx._auto.space import Space
from spmdx._auto.strategy import Strategy as Strategy
from spmdx._auto.strategy import split as split
from spmdx._auto.strategy import tensors_in
from spmdx._auto.trial import Program
from spmdx._base.sizes import bytes_of
from spmdx._kinds.place import place as place
from spmdx._machine.hardware import Hardware
from spmdx._machine.in_use import planning_for
from spmdx._machine.topology import Topology
from spmdx._modules.marking import require_on_device, require_plan
from spmdx._modules.zero import require_optimizer
from spmdx._pipelines.held import tensors_of
from spmdx._program.memory_limit import get_memory_limit, limit_to, without_memory_limit
from spmdx.errors import ShardingError, naming
from spmdx.runtime import global_runtime_device_count

Found = TypeVar("Found")
SCHEDULES = "1f1b", "interleaved:2", "zb-h1"
STAGES = 0, 1, 2, 3


def search(
    step: Callable[[list[Any]], Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    batch: Any = None,
    *,
    devices: int | None = None,
    hardware: Hardware | str | os.PathLike | None = None,
    topology: Topology | str | os.PathLike | None = None,
    memory_limit: int | str | None = None,
    zero: Sequence[int] = STAGES,
    schedules: Sequence[str] = SCHEDULES,
) -> AutoPlan:
    """Find how a training step is best laid over many devices: what to annotate, and how.

    Nothing runs. Data, tensor and pipeline parallelism and their products are looked at, with the
    stages of ZeRO, numbers of microbatches, schedules, and which dims of which parameters tensor
    parallelism cuts. Parts of the model that are alike are planned once; times of strategies are
    estimated from these plans; and the whole step is planned as the best of them say. Where memory
    is short, activations are computed again, as :func:`spmdx.set_memory_limit` has it.

    Args:
        step: takes a list of microbatches, calls the model and ``backward`` for each, and steps
            the optimizer. It may read no values of tensors.
        model: on device "spmdx"; a large one is made within :func:`spmdx.plan_only`. What it is
            annotated with does not count.
        optimizer: of its parameters; None: there is none, and no ZeRO.
        batch: what all devices take in a step: a tensor, or several in containers, on any device,
            with samples along dim 0. Only shapes and dtypes are looked at.
        devices: how many; None: those of this program.
        hardware: what they are, as :func:`spmdx.set_hardware` takes it; None: as it is set.
        topology: what joins them, likewise. Devices with nearby numbers have the fast links.
        memory_limit: of a device, in bytes or as ``"24 GiB"``; None: what hardware has that is
            named here, or a topology here brings; else what :func:`spmdx.set_memory_limit` set.
            It holds in the search; :meth:`AutoPlan.apply` sets it for the program.
        zero: stages of ZeRO that may be used; 0 is none.
        schedules: of pipelines that may be used; see :func:`spmdx.nn.pipeline`.

    Returns:
        The strategies with their figures, of which the first one is chosen.

    Raises:
        ShardingError: no strategy fits, with the number of devices that would do; a step that
            cannot be planned; an argument that is none.

    Example:
        >>> import torch, spmdx
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64))
        >>> model = model.to("spmdx")
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> def step(batches):
        ...     for x in batches:
        ...         (model(x).square().mean() / len(batches)).backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        >>> plan = spmdx.auto.search(step, model, optimizer, torch.ones(512, 64), devices=8)
        >>> plan.strategy.devices, plan.candidates[0].why
        (8, '')
        >>> print(plan.code().splitlines()[2].partition("(")[0])
        mesh = spmdx.Mesh

    Source: Alpa, arXiv:2201.12023, and FlexFlow, arXiv:1807.05358, search such spaces.
    """
    with naming("search"):
        _require_program(step, model, optimizer, batch)
        count = _number_of(devices)
        plan = _searched(
            Search.run,
            Program(step, model, optimizer),
            Space(count, batch, 0, _stages(zero), _schedules(schedules)),
            (hardware, topology, memory_limit),
        )
        return dataclasses.replace(plan, limit_was_passed=memory_limit is not None)


def predict(
    strategy: Strategy,
    step: Callable[[list[Any]], Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    batch: Any = None,
    *,
    hardware: Hardware | str | os.PathLike | None = None,
    topology: Topology | str | os.PathLike | None = None,
    memory_limit: int | str | None = None,
) -> Candidate:
    """Tell what a step would take by a strategy of yours, on devices that need not be here.

    The step is planned whole; where it has many microbatches, with as many as fill the pipeline,
    as far as that is not too much to plan, and the rest follows from plans of the model's parts.

    Args:
        strategy: how the program is laid over devices. A pipeline whose ``stages`` are not told is
            cut where times are most even; ``chunks`` are those of the schedule.
        step, model, optimizer, batch: as :func:`spmdx.auto.search` takes them.
        hardware, topology, memory_limit: likewise.

    Returns:
        The strategy with its figures; ``why`` says what memory lacks, if it does.

    Raises:
        ShardingError: a batch that cannot be split so; an argument that is none; a step that
            cannot be planned.

    Example:
        >>> import torch, spmdx
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64))
        >>> model = model.to("spmdx")
        >>> def step(batches):
        ...     for x in batches:
        ...         (model(x).square().mean() / len(batches)).backward()
        >>> batch = torch.ones(512, 64)
        >>> two, eight = (
        ...     spmdx.auto.predict(spmdx.auto.Strategy(data=n), step, model, batch=batch)
        ...     for n in (2, 8)
        ... )
        >>> two.step_ns > eight.step_ns and two.efficiency > eight.efficiency
        True
    """
    with naming("predict"):
        _require_program(step, model, optimizer, batch)
        samples = tensors_in(batch)[0].shape[0]
        _require_strategy(strategy, model, samples)
        return _searched(
            lambda search: search.predict(strategy),
            Program(step, model, optimizer),
            Space(strategy.devices, batch, 0, [strategy.zero], []),
            (hardware, topology, memory_limit),
        )


def _searched(
    use: Callable[[Search], Found], program: Program, space: Space, machine: tuple[Any, Any, Any]
) -> Found:
    """What is found by a search for a machine, behind which all is as it was."""
    hardware, topology, memory_limit = machine
    _plan_what_was_recorded()
    with planning_for(hardware, topology):
        limit_to(_limit(memory_limit))
        with apart(*program) as effects:
            space.memory_limit = get_memory_limit() or 0
            found = use(Search(program._replace(step=effects.call), space))
        effects.tell()
        return found


def _plan_what_was_recorded() -> None:
    """It is none of the step's. A model that is only planned was made on one device so far."""
    with without_memory_limit() if _C.planning_only() else contextlib.nullcontext():
        _C.flush()


def _require_strategy(strategy: Any, model: torch.nn.Module, samples: int) -> None:
    if not isinstance(strategy, Strategy):
        raise ShardingError(
            f"the strategy is a {type(strategy).__name__}. Expected a spmdx.auto.Strategy. Write "
            "Strategy(data=8)."
        )
    for name in ("data", "model", "pipe", "context", "microbatches", "chunks"):
        size = getattr(strategy, name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShardingError(
                f"{name} of the strategy is {size!r}. Expected a number, at least 1. Write 2."
            )
    if not _is_stage(strategy.zero):
        raise ShardingError(
            f"zero of the strategy is {strategy.zero!r}. Expected one of {STAGES}. Write 1."
        )
    if not isinstance(strategy.schedule, str | None):
        raise ShardingError(
            f"the schedule of the strategy is {strategy.schedule!r}. Expected the name of one. "
            "Write '1f1b'."
        )
    if strategy.plan is not None:
        require_plan(strategy.plan, list(tensors_of(model)))
    pieces = strategy.data * strategy.microbatches
    if samples % pieces:
        raise ShardingError(
            f"a batch of {samples} samples is split into {strategy.microbatches} microbatches over "
            f"{strategy.data} devices. Expected equally many samples in each. Pass a batch of a "
            f"multiple of {pieces}."
        )


def _require_program(step: Any, model: Any, optimizer: Any, batch: Any) -> None:
    if not callable(step):
        raise ShardingError(
            f"the step is a {type(step).__name__}. Expected a function of a list of microbatches. "
            "Write one that calls the model, backward and the optimizer."
        )
    if not isinstance(model, torch.nn.Module):
        raise ShardingError(
            f"the model is a {type(model).__name__}. Expected a torch.nn.Module. Pass the one "
            "that the step calls."
        )
    require_on_device(tensors_of(model))
    if optimizer is not None:
        require_optimizer(optimizer, dict(model.named_parameters()))
    samples = {tensor.shape[0] for tensor in tensors_in(batch)}
    if len(samples) != 1 or samples == {0}:
        raise ShardingError(
            f"the batch has tensors of {sorted(samples)} samples. Expected equally many in each, "
            "and at least one, along dim 0. Pass what a step of all devices takes, as (x, y)."
        )


def _number_of(devices: Any) -> int:
    if devices is None:
        return global_runtime_device_count()
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise ShardingError(
            f"devices is {devices!r}. Expected a number, at least 1. Leave it out for those of "
            "this program."
        )
    return devices


def _limit(given: int | str | None) -> int | None:
    if given is None:
        return get_memory_limit()
    limit = bytes_of(given) if isinstance(given, str) else given
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit < 2**63:
        raise ShardingError(
            f"memory_limit is {given!r}. Expected a number of bytes from 1 to 2**63 - 1, or a "
            "text. Write '24 GiB'."
        )
    return limit


def _stages(zero: Any) -> list[int]:
    stages = list(zero) if isinstance(zero, Iterable) else [zero]
    if not stages or not all(map(_is_stage, stages)):
        raise ShardingError(f"zero is {zero!r}. Expected some of {STAGES}. Write (0, 1).")
    return sorted(set(stages))


def _is_stage(zero: Any) -> bool:
    return isinstance(zero, int) and not isinstance(zero, bool) and zero in STAGES


def _schedules(schedules: Any) -> list[str]:
    is_one = isinstance(schedules, str) or not isinstance(schedules, Iterable)
    orders = [schedules] if is_one else list(schedules)
    for schedule in orders:
        if not isinstance(schedule, str):
            raise ShardingError(
                f"a schedule is {schedule!r}. Expected the name of one. Write '1f1b'."
            )
        _C.make_schedule(schedule, 2, 1)
    return orders


__all__ = ["AutoPlan", "Candidate", "Strategy", "place", "predict", "search", "split"]
