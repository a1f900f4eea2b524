# SPDX-License-Identifier: Apache-2.0
"""A config of DeepSpeed: read, checked, and what of it has a meaning here."""

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from spmdx._integrations.deepspeed.keys import BY_PLANNER, ELSEWHERE, KNOWN, OFFLOAD, ZERO
from spmdx.errors import ShardingError, warn

_SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@dataclass(frozen=True)
class LossScale:
    """How losses are scaled for fp16; ``fixed`` is 0 where the scale moves."""

    fixed: float = 0.0
    power: int = 16
    window: int = 1000
    hysteresis: int = 2
    consecutive: bool = False
    least: float = 1.0


@dataclass(frozen=True)
class Config:
    """What the engine does. Batch sizes are rows: of a step, of a device's share, and how often."""

    train_batch_size: int
    micro_batch_size: int
    accumulation: int
    stage: int = 0
    dtype: torch.dtype = torch.float32
    loss_scale: LossScale | None = None
    clipping: float = 0.0
    optimizer: tuple[str, dict[str, Any]] | None = None
    scheduler: tuple[str, dict[str, Any]] | None = None
    drop_last: bool = False
    offload: bool = False


def read_config(config: Any, world: int) -> Config:
    """The config, of a dict or of a JSON file.

    Args:
        config: as DeepSpeed's ``initialize`` takes it.
        world: into how many parts a batch is cut.

    Raises:
        ShardingError: a key that is not known or not done here, or sizes that do not fit.
    """
    held = _held(config)
    _require_known(held, KNOWN, "")
    zero = _object(held, "zero_optimization")
    _require_known(zero, ZERO, "zero_optimization.")
    planned = [name for name in held if name in BY_PLANNER and held[name]]
    planned += [f"zero_optimization.{name}" for name in zero if name in BY_PLANNER and zero[name]]
    if planned:
        warn(
            f"the config says {', '.join(planned)}, which the planner of spmdx decides by itself. "
            "Leave them out."
        )
    dtype, scale = _precision(held)
    train, micro, accumulation = batch_sizes(held, world)
    return Config(
        train,
        micro,
        accumulation,
        _stage(zero),
        dtype,
        scale,
        _number(held, "gradient_clipping", 0.0),
        _section(held, "optimizer"),
        _section(held, "scheduler"),
        bool(held.get("dataloader_drop_last", False)),
        _offload(zero),
    )


def _held(config: Any) -> dict[str, Any]:
    if isinstance(config, str | os.PathLike):
        try:
            config = json.loads(Path(config).read_text(), object_pairs_hook=_once)
        except (OSError, json.JSONDecodeError) as error:
            raise ShardingError(
                f"the config {config!r} cannot be read: {error}. Expected a JSON file. Mend it, or "
                "pass a dict."
            ) from error
    if not isinstance(config, Mapping):
        raise ShardingError(
            f"the config is a {type(config).__name__}. Expected a dict or the path of a JSON file. "
            'Write config={"train_batch_size": 8}.'
        )
    return dict(config)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ShardingError(f"the config has {name!r} twice. Expected it once. Drop one.")
    return dict(pairs)


def _object(held: Mapping[str, Any], name: str, prefix: str = "") -> Mapping[str, Any]:
    """A section; empty where nothing is said, or false."""
    value = held.get(name) or {}
    if not isinstance(value, Mapping):
        raise ShardingError(
            f"{prefix}{name} is {value!r}. Expected an object with keys. Write "
            f'{{"{name}": {{...}}}}, or leave it out.'
        )
    return value


def _number(held: Mapping[str, Any], name: str, default: float, prefix: str = "") -> float:
    value = held.get(name)
    if value is None:
        return default
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ShardingError(
            f"{prefix}{name} is {value!r}. Expected a number. Write one, or leave it out."
        ) from error


def _is_off(value: Any) -> bool:
    """Whether a section says that nothing is to be done."""
    if isinstance(value, Mapping):
        return not value or value.get("enabled") is False or value.get("device") == "none"
    return value is None or value is False or value == 0


def _require_known(held: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    for name, value in held.items():
        if value == "auto":
            raise ShardingError(
                f"{prefix}{name} is 'auto', which the Trainer of transformers fills in. Expected a "
                "value. Write it."
            )
        if name in known:
            continue
        if name in ELSEWHERE:
            if _is_off(value):
                continue
            raise ShardingError(f"{prefix}{name} is {value!r}. Expected it off. {ELSEWHERE[name]}")
        near = difflib.get_close_matches(name, [*known, *ELSEWHERE], 1)
        mend = f"Did you mean {near[0]!r}?" if near else "Leave it out."
        raise ShardingError(f"{prefix}{name} is no key that is known here. {mend}")


def batch_sizes(held: Mapping[str, Any], world: int) -> tuple[int, int, int]:
    """Rows of a step, rows of one of ``world`` parts at a time, and how many times that is.

    What is not said follows from what is.
    """
    train, micro, accumulation = (held.get(name) for name in _SIZES)
    for name, size in zip(_SIZES, (train, micro, accumulation), strict=True):
        if size is not None and (type(size) is not int or size < 1):
            raise ShardingError(f"{name} is {size!r}. Expected a number of at least 1. Mend it.")
    if train is None and micro is None:
        raise ShardingError(
            f"the config lacks {_SIZES[0]} and {_SIZES[1]}. Expected one of them. Write "
            f"{_SIZES[0]}."
        )
    if micro is None:
        assert train is not None
        micro = train // world // (accumulation or 1)
    if accumulation is None:
        accumulation = 1 if train is None else train // (micro * world) if micro else 0
    train = micro * accumulation * world if train is None else train
    if train != micro * accumulation * world or not train:
        raise ShardingError(
            f"{_SIZES[0]} is {train}, and {_SIZES[1]} · {_SIZES[2]} · devices is {micro} · "
            f"{accumulation} · {world}. Expected the same number. Leave one of them out."
        )
    return train, micro, accumulation


def _stage(zero: Mapping[str, Any]) -> int:
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        raise ShardingError(
            f"zero_optimization.stage is {stage!r}. Expected 0, 1, 2 or 3. Write one of them."
        )
    return stage


def _offload(zero: Mapping[str, Any]) -> bool:
    """Whether the state of the optimizer lies in the memory of hosts."""
    if _is_off(zero.get("offload_optimizer")):
        return False
    said, prefix = _object(zero, "offload_optimizer", "zero_optimization."), "zero_optimization."
    _require_known(said, OFFLOAD, f"{prefix}offload_optimizer.")
    device, ratio = said.get("device"), said.get("ratio", 1.0)
    if device != "cpu":
        raise ShardingError(
            f"{prefix}offload_optimizer.device is {device!r}. Expected 'cpu' or 'none': state lies "
            "in the memory of hosts or on devices. Write one of them."
        )
    if ratio != 1.0:
        raise ShardingError(
            f"{prefix}offload_optimizer.ratio is {ratio!r}. Expected 1.0: all of the state lies in "
            "the memory of hosts. Leave it out."
        )
    if not _stage(zero):
        raise ShardingError(
            f"{prefix}offload_optimizer is {dict(said)!r}, and the stage is 0. Expected a stage "
            'that cuts the state. Write "stage": 1.'
        )
    return True


def _precision(held: Mapping[str, Any]) -> tuple[torch.dtype, LossScale | None]:
    half, brain = _object(held, "fp16"), _object(held, "bf16")
    _require_known(brain, frozenset({"enabled"}), "bf16.")
    _require_known(half, _FP16, "fp16.")
    if half.get("enabled") and brain.get("enabled"):
        raise ShardingError("fp16 and bf16 are both enabled. Expected one. Drop one of them.")
    if brain.get("enabled"):
        return torch.bfloat16, None
    if not half.get("enabled"):
        return torch.float32, None
    return torch.float16, LossScale(
        _number(half, "loss_scale", 0.0, "fp16."),
        int(_number(half, "initial_scale_power", 16, "fp16.")),
        int(_number(half, "loss_scale_window", 1000, "fp16.")),
        int(_number(half, "hysteresis", 2, "fp16.")),
        bool(half.get("consecutive_hysteresis", False)),
        _number(half, "min_loss_scale", 1.0, "fp16."),
    )


_FP16 = frozenset(
    {
        "enabled",
        "loss_scale",
        "initial_scale_power",
        "loss_scale_window",
        "hysteresis",
        "consecutive_hysteresis",
        "min_loss_scale",
    }
)


def _section(held: Mapping[str, Any], name: str) -> tuple[str, dict[str, Any]] | None:
    section = _object(held, name)
    if not section:
        return None
    _require_known(section, frozenset({"type", "params", "legacy_fusion"}), f"{name}.")
    params = _object(section, "params", f"{name}.")
    for key, value in params.items():
        if value == "auto":
            raise ShardingError(
                f"{name}.params.{key} is 'auto', which the Trainer of transformers fills in. "
                "Expected a value. Write it."
            )
    return str(section.get("type")), dict(params)
