# SPDX-License-Identifier: Apache-2.0
"""What a device of this process does by itself, measured."""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

import spmdx._C as _C
from spmdx._machine.hardware import Hardware
from spmdx._machine.timing import least_seconds
from spmdx._world import processes

_SIDES = (32, 64, 128, 256, 512, 1024)  # of square matrices
_DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16}
_WITHIN_SECONDS = 0.05  # longer products of a dtype are left out
_COPIED = tuple(1 << power for power in range(12, 25, 2))  # bytes of tensors, 4 KiB to 16 MiB
_STAYS = 1 << 18  # bytes of a tensor that a step's next op finds in the caches of its core
_POOL = 1 << 26  # of tensors in turn, so that none is found in caches
_FEW, _WIDE = 16, 512  # rows, and columns of the matrix that multiplies them
_LAYERS = 8  # small ones
_STEPS = 5  # of them, of which one is recorded while the one before runs
_MEASURED = (
    "flops_per_second",
    "memory_bytes_per_second",
    "memory_efficiency",
    "product_efficiency",
    "launch_ns",
    "packing_bytes_per_second",
    "host_bytes_per_second",
)
_HIDDEN = 0.05  # of a product's time: less is noise
Timed = Callable[[Callable[[], object], int], float]


def measure_hardware(
    name: str = "this machine, measured", timed: Timed = least_seconds
) -> Hardware:
    """Rates by dtype and of memory, shares of them by size, and what it takes to start an op.

    Where other processes have devices, too, each records and starts the ops of its own one: then
    that counts as well.

    Args:
        name: what to call it.
        timed: seconds of a call, of so many; of several processes all call it alike.
    """
    tiny = torch.ones(1)
    started_ns = int(1e9 * timed(lambda: tiny + tiny, 1000))
    copies = _copies_by_bytes(started_ns, timed)
    fastest = max(copies.values())
    rates = {dtype: _rates_by_flops(_DTYPES[dtype], started_ns, timed) for dtype in _DTYPES}
    peaks = {dtype: max(found.values()) for dtype, found in rates.items()}
    return Hardware(
        name=name,
        flops_per_second=peaks,
        memory_bytes_per_second=fastest,
        memory_efficiency=_shares(copies),
        product_efficiency=_shares(rates["f32"]),
        launch_ns=started_ns if processes.process_count() == 1 else _launch_ns(timed),
        packing_bytes_per_second=_packing_rate(rates["f32"], started_ns, timed),
        host_bytes_per_second=[*copies.values()][-1] / 2,  # the same memory
        sources=dict.fromkeys(_MEASURED, "spmdx.calibrate"),
    )


def _rates_by_flops(dtype: torch.dtype, started_ns: int, timed: Timed) -> dict[float, float]:
    """Operations a second of products of so many operations, without what starts them."""
    found: dict[float, float] = {}
    for side in _SIDES:
        matrix = torch.ones(side, side, dtype=dtype)
        seconds = timed(lambda m=matrix: m @ m, 10)  # type: ignore[misc]
        found[2.0 * side**3] = _rate(2 * side**3, seconds, started_ns)
        if max(processes.exchange(seconds)) > _WITHIN_SECONDS:  # in all of them, or in none
            break
    return found


def _copies_by_bytes(started_ns: int, timed: Timed) -> dict[float, float]:
    """Bytes a second of ops that read and write so many: what is small stays in caches."""
    found: dict[float, float] = {}
    for size in _COPIED:
        tensors = [torch.ones(size // 4) for _ in range(1 if size <= _STAYS else _POOL // size)]
        turns = itertools.cycle(tensors)
        seconds = timed(lambda turns=turns: next(turns).clone(), 10)  # type: ignore[misc]
        found[2.0 * size] = _rate(2 * size, seconds, started_ns)
    return found


def _packing_rate(rates: dict[float, float], started_ns: int, timed: Timed) -> float:
    """Bytes a second that few rows times large matrices take beside their operations; 0: none.

    Args:
        rates: operations a second of square products, by operations.
    """
    rows, size = torch.ones(_FEW, _WIDE), 4 * _WIDE**2
    turns = itertools.cycle([torch.ones(_WIDE, _WIDE) for _ in range(_POOL // size)])
    seconds = timed(lambda: rows @ next(turns), 10) - 1e-9 * started_ns
    operations = 2 * _FEW * _WIDE**2
    rate = float(np.interp(operations, list(rates.keys()), list(rates.values())))
    beside = seconds - operations / rate
    return (size + 2 * 4 * _FEW * _WIDE) / beside if beside > _HIDDEN * seconds else 0.0


def _rate(amount: int, seconds: float, started_ns: int) -> float:
    """Of an op a second, without what starts it."""
    return amount / max(seconds - 1e-9 * started_ns, 0.5 * seconds)


def _shares(rates: dict[float, float]) -> tuple[tuple[float, float], ...]:
    """Shares of the highest rate, of which none grows faster than the work, as noise has it."""
    kept: list[tuple[float, float]] = []
    peak, most = max(rates.values()), float("inf")  # the latter: share / size of the point before
    for size, rate in rates.items():
        share = min(rate / peak, most * size)
        kept.append((size, share))
        most = share / size
    return tuple(kept)


def _launch_ns(timed: Timed) -> int:
    """Of an op, recorded and run."""
    steps = small_steps(lambda tensor: tensor)
    return by_ops(timed(steps, 3))


def small_steps(placed: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
    """Training steps of small layers, whose parameters and input are ``placed``."""
    host = [torch.full(shape, 0.1) for _ in range(_LAYERS) for shape in ((8, 8), (8,))]
    held = [placed(tensor.to("spmdx")).requires_grad_() for tensor in host]
    x, optimizer = placed(torch.ones(8, 8).to("spmdx")), torch.optim.AdamW(held)

    def steps() -> None:
        for _ in range(_STEPS):
            result = x
            for weight, bias in zip(held[::2], held[1::2], strict=True):
                result = functional.linear(result, weight, bias).relu()
            result.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            _C.flush()
        _C.wait()

    return steps


def by_ops(seconds: float) -> int:
    """Nanoseconds of an op of :func:`small_steps`, which ran last and took so many seconds."""
    report = _C.report_last()
    assert report is not None
    return int(1e9 * seconds / (_STEPS * len(report["timeline"])))
