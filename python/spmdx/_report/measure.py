# SPDX-License-Identifier: Apache-2.0
"""Measuring: steps are called, first as they are, then with times taken of each op."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

import spmdx._C as _C
from spmdx._machine.watching import measuring, watched
from spmdx._report.profile import MeasuredOp, Profile
from spmdx.errors import ShardingError, naming


def profile(step: Callable[[], Any], *, steps: int = 5, warmup: int = 2) -> Profile:
    """Measure a step, and lay what was measured beside what was predicted.

    The step is called ``warmup + 2 * steps`` times: to be planned, to take the time of the whole,
    and to take the times of its ops. It changes the program as ever: it trains.

    Args:
        step: a function that runs one step; it may call :func:`spmdx.mark_step`, or read values.
            What is still recorded when it returns, and what it returns, is computed then.
        steps: how many steps are measured; figures are medians over them.
        warmup: how many steps come before, which plan and fill caches.

    Returns:
        Times of the step, and of each op and collective. On a GPU the times of ops are taken
        while it runs one after the other.

    Raises:
        ShardingError: ``step`` is no function, runs nothing on the device, or runs other programs
            from step to step.
        Exception: what the step raises.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> x = spmdx.mark_sharding(torch.ones(64, 8).to("spmdx"), mesh, ("data", None))
        >>> profile = spmdx.profile(lambda: x.exp().sum().item(), steps=2)
        >>> [kind.name for kind in profile.by_kind() if kind.lane == "wire"]
        ['all_reduce']
        >>> profile.step_ns > 0 and profile.predicted_ns > 0
        True
    """
    with naming("profile"):
        _check(step, steps, warmup)
    with measuring("profile"):
        return _profile(step, steps, warmup)


def _check(step: Any, steps: Any, warmup: Any) -> None:
    if not callable(step):
        raise ShardingError(
            f"step is {step!r}. Expected a function without arguments that runs one step. Write "
            "spmdx.profile(lambda: train_step(batch))."
        )
    for name, value, least in (("steps", steps, 1), ("warmup", warmup, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ShardingError(
                f"{name} is {value!r}. Expected an int of at least {least}. Write {name}=2."
            )
    if _C.planning_only():
        raise ShardingError(
            "nothing runs within spmdx.plan_only(), so there is nothing to measure. Expected a "
            "program that runs. Read what is predicted: spmdx.explain().step_ns."
        )


def _finish() -> None:
    _C.flush(awaited=True)
    _C.wait()


def _called(step: Callable[[], Any]) -> int:
    """Call ``step`` and wait; what it returns is computed, too. Says when the call returned."""
    result = step()
    returned = time.perf_counter_ns()
    _finish()
    del result
    return returned


def _profile(step: Callable[[], Any], steps: int, warmup: int) -> Profile:
    _finish()
    for _ in range(warmup):
        _called(step)
    made = _C.counters()["plans_compiled"]
    whole = [_timed(step) for _ in range(steps)]
    runs = watched(lambda: _called(step), steps)
    made = _C.counters()["plans_compiled"] - made
    with naming("profile"):
        _require_same(runs)
    ops = _ops(runs)
    return Profile(
        mesh=runs[0]["plans"][0]["mesh"],
        devices=runs[0]["plans"][0]["devices"],
        step_ns=_median([taken for taken, _ in whole]),
        host_ns=_median([host for _, host in whole]),
        predicted_ns=sum(runs[0]["plans"][number]["step_ns"] for number in runs[0]["steps"]),
        ops=ops,
        wait_ns=_median([_waited(run) for run in runs]),
        plans_made=made,
    )


def _timed(step: Callable[[], Any]) -> tuple[int, int]:
    """Nanoseconds until the results are there, and until the call has returned."""
    began = time.perf_counter_ns()
    returned = _called(step)
    return time.perf_counter_ns() - began, returned - began


def _require_same(runs: list[dict[str, Any]]) -> None:
    if not runs[0]["steps"]:
        raise ShardingError(
            "the step ran nothing on device 'spmdx'. Expected one that computes there. Give it "
            "tensors of that device."
        )
    for run in runs[1:]:
        if (run["steps"], run["plans"]) != (runs[0]["steps"], runs[0]["plans"]):
            raise ShardingError(
                "the step ran other programs from call to call. Expected the same ops on tensors "
                "of the same shapes. Give it a batch that stays, or a larger warmup."
            )


def _predicted_end(plan: dict[str, Any]) -> int:
    return max((row[-1] for row in plan["nodes"].values()), default=0)


def _waited(run: dict[str, Any]) -> int:
    return sum(r["end_ns"] - r["start_ns"] for r in run["ranges"] if r["kind"] == "wait")


def _median(values: list[int]) -> int:
    return round(float(np.median(values)))


def _ops(runs: list[dict[str, Any]]) -> list[MeasuredOp]:
    """What ran, with the medians over the runs of the step."""
    measured: dict[tuple[int, int], list[tuple[dict[str, Any], int]]] = defaultdict(list)
    for run in runs:
        began = min(r["start_ns"] for r in run["ranges"])
        for r in run["ranges"]:
            if r["kind"] == "node":
                measured[r["step"], r["node"]].append((r, began))
    first = runs[0]
    starts, offset = {}, 0  # when programs of one step begin, by the cost model
    for number, plan in enumerate(first["steps"]):
        starts[number] = offset
        offset += _predicted_end(first["plans"][plan])
    found = []
    for (number, node), rows in measured.items():
        row, plan = rows[0][0], first["plans"][first["steps"][number]]
        predicted = plan["nodes"].get(node, (0, 0))[-2:]
        start = _median([r["start_ns"] - began for r, began in rows])
        taken = _median([r["end_ns"] - r["start_ns"] for r, _ in rows])
        found.append(
            MeasuredOp(
                lane="wire" if row["wire"] else "compute",
                name=row["name"],
                axes=tuple(row["axes"]),
                bytes=row["bytes"],
                source=row["source"],
                predicted_start_ns=starts[number] + predicted[0],
                predicted_end_ns=starts[number] + predicted[1],
                start_ns=start,
                end_ns=start + taken,
                device_ns=taken if row["wire"] else _median([r["longest_ns"] for r, _ in rows]),
                shards=row["shards"],
            )
        )
    return sorted(found, key=lambda op: op.start_ns)
