# SPDX-License-Identifier: Apache-2.0
"""Files of traces: one for each device, and one that lists groups of devices."""

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import spmdx._C as _C
from spmdx._base.arguments import integers, require_path
from spmdx._report.chakra.schema import COLLECTIVES, NODE_TYPES, VERSION, messages
from spmdx.errors import ShardingError, naming


def save(
    prefix: str | os.PathLike, plan: "_C.PlanHandle | None", ranks: Iterable[int] | None
) -> list[pathlib.Path]:
    """Writes the traces of a plan; see :meth:`spmdx.report.Report.save_chakra`."""
    with naming("save_chakra"):
        require_path(prefix, "traces/step", "files without their endings")
        if plan is None:
            raise ShardingError(
                "the report has no plan: it is a copy, or nothing was to be done. Expected one "
                "that spmdx.explain returned for a program. Save its traces where it is made."
            )
        messages()
        traces = plan.traces()
        asked = _checked(ranks, traces.devices)
    paths = [_write(traces, prefix, device) for device in asked]
    groups = pathlib.Path(f"{os.fspath(prefix)}.groups.json")
    groups.write_text(json.dumps({str(i + 1): group for i, group in enumerate(traces.groups)}))
    return [*paths, groups]


def _checked(ranks: Iterable[int] | None, devices: list[int]) -> list[int]:
    if ranks is None:
        return devices
    asked = set(integers(ranks, "ranks", "Write range(8) or [0, 4]."))
    if missing := asked.difference(devices):
        raise ShardingError(
            f"ranks has {min(missing)}. Expected devices of the plan: {len(devices)} of them, from "
            f"{devices[0]} to {devices[-1]}. Write ranks=[{devices[0]}], or leave it out for all."
        )
    return sorted(asked)


def _write(traces: "_C.Traces", prefix: str | os.PathLike, device: int) -> pathlib.Path:
    of, write = messages()
    path = pathlib.Path(f"{os.fspath(prefix)}.{device}.et")
    with path.open("wb") as file:
        write(of["GlobalMetadata"](version=VERSION), file)
        for number, row in enumerate(traces.nodes(device)):
            write(_node(of, number, device, row), file)
    return path


def _node(of: dict[str, Any], number: int, device: int, row: dict[str, Any]) -> Any:
    attributes = _attributes(device, row) | {
        "is_cpu_op": ("bool_val", False),
        "duration_nanos": ("int64_val", row["ns"]),
        "source": ("string_val", row["source"]),
    }
    return of["Node"](
        id=number,
        name=row["name"],
        type=NODE_TYPES[row["kind"]],
        data_deps=row["reads"],
        ctrl_deps=row["after"],
        duration_micros=round(row["ns"] / 1000),
        attr=[of["AttributeProto"](name=n, **{kind: v}) for n, (kind, v) in attributes.items()],
    )


def _attributes(device: int, row: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    """By name the field and the value; the types are those that Chakra's feeder reads."""
    if row["kind"] == "compute":  # rooflines divide by both
        flops, touched = max(row["flops"], 1), max(row["bytes"], 1)
        return {"num_ops": ("int64_val", flops), "tensor_size": ("uint64_val", touched)}
    moved = {"comm_size": ("int64_val", row["bytes"]), "comm_priority": ("int32_val", 0)}
    if row["kind"] == "collective":
        return moved | {
            "comm_type": ("int64_val", COLLECTIVES[row["name"]]),
            "pg_name": ("string_val", str(row["group"] + 1)),
        }
    ends = (device, row["peer"]) if row["kind"] == "send" else (row["peer"], device)
    return moved | {
        "comm_src": ("int32_val", ends[0]),
        "comm_dst": ("int32_val", ends[1]),
        "comm_tag": ("int32_val", row["node"]),
    }
