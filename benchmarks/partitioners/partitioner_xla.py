# SPDX-License-Identifier: Apache-2.0
"""XLA's partition of an exported program: run on devices of one process, and its collectives."""

import functools
import itertools
import math
import re
from typing import Any

import torch
from spmdx._targets import pjrt
from torch.utils import dlpack

DEVICES = 8
KINDS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "collective_permute",
}
SIZES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "f64": 8, "s64": 8}
LINE = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\((.*)")


@functools.cache
def client() -> Any:
    return pjrt.library().make_cpu_client(asynchronous=False, num_devices=DEVICES)


class Partitioned:
    """A module that XLA has partitioned for so many devices."""

    def __init__(self, text: str, devices: int):
        self.devices = client().local_devices()[:devices]
        self.list = pjrt.library().DeviceList(tuple(self.devices))
        self.executable = client().compile_and_load(text, self.list, _options(devices))
        self.hlo = self.executable.hlo_modules()[0].to_string()

    def run(self, whole: list[torch.Tensor]) -> list[torch.Tensor]:
        """Whole results of whole arguments, which are cut by the shardings of the program."""
        found = self.shards(whole)
        gives = _shardings(self.executable.get_output_shardings(), len(found))
        return [_joined(s, g) for s, g in zip(found, gives, strict=True)]

    def shards(self, whole: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """What each device has of each result."""
        takes = _shardings(self.executable.get_parameter_shardings(), len(whole))
        given = [self._array(t, s) for t, s in zip(whole, takes, strict=True)]
        found = self.executable.execute_sharded(given).disassemble_into_single_device_arrays()
        return [[_tensor(shard) for shard in result] for result in found]

    def boxes(self, shapes: list[torch.Size]) -> list[list[tuple[slice, ...]]]:
        """What each device is given of each argument."""
        takes = _shardings(self.executable.get_parameter_shardings(), len(shapes))
        count = len(self.devices)
        return [_boxes(shape, s, count) for shape, s in zip(shapes, takes, strict=True)]

    def _array(self, tensor: torch.Tensor, sharding: Any) -> Any:
        xla = pjrt.library()._xla
        boxes = _boxes(tensor.shape, sharding, len(self.devices))
        shards = [
            xla.dlpack_managed_tensor_to_buffer(dlpack.to_dlpack(tensor[b].clone()), d, None)
            for b, d in zip(boxes, self.devices, strict=True)
        ]
        whole = xla.GSPMDSharding(self.list, sharding)
        return xla.ArrayImpl(_Aval(tensor), whole, shards, True, True)

    def collectives(self) -> list[tuple[str, int]]:
        """Of each its kind and the bytes that one device receives, as spmdx counts them."""
        return [_collective(*found.groups()) for found in LINE.finditer(self.hlo)]


class _Aval:
    """What an array of JAX is asked for."""

    weak_type = False

    def __init__(self, tensor: torch.Tensor):
        self.shape, self.dtype = tuple(tensor.shape), tensor.new_empty(0).numpy().dtype


def _options(devices: int) -> Any:
    xla_client = pjrt.library()
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = 1, devices
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, devices
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    places = torch.arange(devices).reshape(1, devices).numpy()
    build.device_assignment = xla_client.DeviceAssignment.create(places)
    return options


def _shardings(found: Any, count: int) -> list[Any]:
    hlo = pjrt.library().HloSharding
    return [hlo.from_proto(s) for s in found] if found else [hlo.replicate()] * count


def _boxes(shape: torch.Size, sharding: Any, devices: int) -> list[tuple[slice, ...]]:
    """What each device holds of a tensor; the last parts of a dim may be short, or empty."""
    if sharding.is_replicated():
        return [(...,)] * devices
    cuts = sharding.tile_assignment_dimensions()
    parts, places = cuts[: len(shape)], sharding.tile_assignment_devices()
    chunks = [-(-size // n) for size, n in zip(shape, parts, strict=True)]
    boxes: dict[int, tuple[slice, ...]] = {}
    for device, index in zip(places, itertools.product(*map(range, cuts)), strict=True):
        starts = [i * c for i, c in zip(index, chunks, strict=False)]
        boxes[device] = tuple(slice(s, s + c) for s, c in zip(starts, chunks, strict=True))
    return [boxes[d] for d in range(devices)]


def _tensor(array: Any) -> torch.Tensor:
    made = pjrt.library()._xla.buffer_to_dlpack_managed_tensor(array, None)
    return dlpack.from_dlpack(made).clone()


def _joined(shards: list[torch.Tensor], sharding: Any) -> torch.Tensor:
    if sharding.is_replicated():
        return shards[0]
    cuts = sharding.tile_assignment_dimensions()[: shards[0].dim()]
    shape = torch.Size(n * c for n, c in zip(shards[0].shape, cuts, strict=True))
    whole = shards[0].new_empty(shape)
    for box, shard in zip(_boxes(shape, sharding, len(shards)), shards, strict=True):
        whole[box] = shard
    return whole


def _collective(result: str, kind: str, rest: str) -> tuple[str, int]:
    size = sum(
        SIZES.get(dtype, 4) * math.prod(int(n) for n in dims.split(",") if n)
        for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", result)
    )
    if kind == "collective-permute":
        return KINDS[kind], size
    group = _group_size(rest)
    times = {"all-reduce": 2, "reduce-scatter": group}.get(kind, 1)
    return KINDS[kind], times * size * (group - 1) // group


def _group_size(text: str) -> int:
    """Of replica_groups: ``{{0,1},{2,3}}``, ``[2,4]<=[8]``, or axes of a mesh."""
    if found := re.search(r"replica_groups=\{\{([\d,]*)\}", text):
        return len(found[1].split(","))
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", text):
        return int(found[1])
    found = re.search(r"replica_groups=mesh\[(.*?)\] \{(.*?)\}", text)
    assert found, text
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
    named = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", found[2])
    return math.prod(int(part or sizes[axis]) for axis, part in named)
