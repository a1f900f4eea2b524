# SPDX-License-Identifier: Apache-2.0
"""What each stage of ZeRO holds and sends, by arithmetic, beside what the last plan holds."""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch

import spmdx._C as _C
from spmdx._base.cells import Drawn, table
from spmdx._modules.marking import require_module
from spmdx._modules.zero import require_optimizer
from spmdx.errors import ShardingError, naming, warn

WAYS = {"capturable", "differentiable", "foreach", "fused"}  # to compute the same, some on GPUs


@dataclasses.dataclass(frozen=True)
class ZeroStage:
    """What one of ``n`` devices holds from step to step, and receives in a step, in bytes.

    Attributes:
        stage: 0 is data parallel alone; "planned" are the bytes of the last plan at its worst
            moment, at which a gradient need not be there.
        parameters: with buffers, which are never cut.
        gradients: of the dtype of their parameters.
        optimizer_state: as far as it has the shape of parameters.
        held: all three.
        wire: to sum gradients up, and to gather what was learned; in stage 3 all parameters, once
            for each forward and backward pass.
    """

    stage: int | str
    parameters: int
    gradients: int
    optimizer_state: int
    held: int
    wire: int


@dataclasses.dataclass(frozen=True, repr=False)
class ZeroReport(Drawn):
    """The stages beside each other.

    Attributes:
        devices: over how many the axis cuts.
        stages: 0 to 3, of formulas; and "planned", where a program was planned.
        kept_copies: of what the formula of stage 3 sends in all passes of the last plan, bytes that
            it does not: the copy of the forward pass is kept for a backward pass that is near.
        not_read: and those of parameters that a backward pass does not read, as biases.
    """

    devices: int
    stages: list[ZeroStage]
    kept_copies: int = 0
    not_read: int = 0

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield table(f"ZeRO over {self.devices} devices: bytes of each", ZeroStage, self.stages)
        if self.kept_copies or self.not_read:
            yield (
                f"planned: {self.kept_copies} bytes are not gathered again, as copies are kept; "
                f"{self.not_read} are not read by a backward pass"
            )


def _state_of_a_step(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], dtype: torch.dtype, shape: torch.Size
) -> dict[str, Any]:
    """What a step of a like optimizer keeps of a parameter of this group, dtype and shape."""
    kind = type(optimizer)
    stand_in = torch.nn.Parameter(torch.zeros(shape, dtype=dtype, device="cpu"))
    gradient = torch.zeros_like(stand_in)
    stand_in.grad = gradient.to_sparse() if issubclass(kind, torch.optim.SparseAdam) else gradient
    known = inspect.signature(kind).parameters.keys() & optimizer.defaults.keys()
    options: dict[str, Any] = {name: False if name in WAYS else group[name] for name in known}
    try:
        tried = kind([stand_in], **options)
        tried.step()
    except Exception as error:  # of whatever it asks for
        warn(
            f"zero_report: {kind.__name__} takes no step on a parameter alone: "
            f"{type(error).__name__}: {error}. Expected one that does, to see what it keeps, which "
            "is not counted. Let it take a step first."
        )
        return {}
    return tried.state[stand_in]


def _bytes_like(state: dict[str, Any], shape: torch.Size) -> int:
    """Of the tensors of this shape, bytes of an element."""
    tensors = (v for v in state.values() if isinstance(v, torch.Tensor) and v.shape == shape)
    return sum(v.dtype.itemsize for v in tensors if v.dim())


def _state_bytes(optimizer: torch.optim.Optimizer, own: set[int]) -> int:
    """What it keeps of its parameters among ``own``, by id, and has their shape, or would keep."""
    tried: dict[tuple[int, torch.dtype, int], int] = {}
    total = 0
    for i, group in enumerate(optimizer.param_groups):
        for p in (p for p in group["params"] if id(p) in own):
            state = optimizer.state.get(p)
            key = i, p.dtype, p.dim()
            if not state and key not in tried:
                shape = torch.Size(range(2, 2 + p.dim()))  # parts of it have another shape
                tried[key] = _bytes_like(_state_of_a_step(optimizer, group, p.dtype, shape), shape)
            total += p.numel() * (_bytes_like(state, p.shape) if state else tried[key])
    return total


def zero_report(model: torch.nn.Module, optimizer: torch.optim.Optimizer, n: int) -> ZeroReport:
    """What each device holds and receives in each stage of ZeRO over ``n`` devices.

    The formulas are those of the paper for what this model and optimizer hold: P / n, G / n and
    S / n bytes of what is cut, and (n - 1) / n of P or G for each time that they are summed up or
    gathered. Parameters that do not learn are cut and gathered in stage 3 alone. Uneven parts,
    small parameters that stay whole and what a step needs on its way come on top: these are in the
    plan.

    Args:
        model: on any device, "meta" among them.
        optimizer: of its parameters. Where it has no state yet, one element is stepped on, to see
            what it keeps.
        n: how many devices the axis has.

    Returns:
        The stages 0 to 3, and what the last plan holds.

    Raises:
        ShardingError: no module, no optimizer of it, or no number of devices.

    Example:
        >>> import torch, spmdx
        >>> model = torch.nn.Linear(1000, 1000, bias=False)
        >>> report = spmdx.nn.zero_report(model, torch.optim.Adam(model.parameters()), 4)
        >>> [stage.held for stage in report.stages[:4]]
        [16000000, 10000000, 7000000, 4000000]

    Source: ZeRO, arXiv:1910.02054, section 5.
    """
    with naming("zero_report"):
        require_module(model)
        named = dict(model.named_parameters())
        held = {id(p) for p in require_optimizer(optimizer, named)}
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ShardingError(f"n is {n!r}. Expected a number of devices, at least 1. Write 8.")
        parameters = sum(p.numel() * p.dtype.itemsize for p in named.values())
        gradients = sum(p.numel() * p.dtype.itemsize for p in named.values() if p.requires_grad)
        state = _state_bytes(optimizer, held)
        kept = sum(b.numel() * b.dtype.itemsize for b in model.buffers())
        stages = [_stage(s, n, parameters, gradients, state, kept) for s in range(4)]
        row = _C.report_last()
        if row is None:
            return ZeroReport(n, stages)
        return ZeroReport(n, [*stages, _planned(row, named.values())], *_not_sent(row))


def _stage(stage: int, n: int, parameters: int, gradients: int, state: int, kept: int) -> ZeroStage:
    p = parameters / (n if stage >= 3 else 1) + kept
    g = gradients / (n if stage >= 2 else 1)
    s = state / (n if stage >= 1 else 1)
    gathered = 2 * parameters if stage == 3 else gradients  # as many bytes as what learns
    wire = (gathered + gradients) * (n - 1) / n
    return ZeroStage(stage, round(p), round(g), round(s), round(p + g + s), round(wire))


def _planned(row: dict[str, Any], parameters: Iterable[torch.Tensor]) -> ZeroStage:
    kinds = row["memory"]["by_kind"]
    held = [kinds[kind] for kind in ("parameters", "gradients", "optimizer state")]
    held[0] += min(kinds["inputs"], sum(map(_bytes_of_input, parameters)))
    wire = sum(c["bytes"] * c["count"] for c in row["collectives"])
    return ZeroStage("planned", held[0], held[1], held[2], sum(held), wire)


def _bytes_of_input(parameter: torch.Tensor) -> int:
    """Of one that no step changes and nobody annotated, which a plan takes for an input."""
    is_changed = parameter.requires_grad or not _C.is_lazy(parameter)
    return 0 if is_changed or _C.annotation(parameter) is not None else _C.local_bytes(parameter)


def _not_sent(row: dict[str, Any]) -> tuple[int, int]:
    """Bytes of copies that both passes read, and of parameters that the forward pass alone does."""
    first, second, both = 0, 0, 0
    for copy in row["gathered"]:
        first += copy["forward"] * copy["bytes"]
        second += copy["backward"] * copy["bytes"]
        both += (copy["forward"] and copy["backward"]) * copy["bytes"]
    return both, max(0, first - second)
