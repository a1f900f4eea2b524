# SPDX-License-Identifier: Apache-2.0
"""Loaders of several processes give the global batches, on any mesh, of any sizes and ends."""

import pytest
import spmdx
import torch
from messages import eight_devices
from spmdx._data import parts as placing
from spmdx._data import split as splitting
from spmdx.data import ShardingSpec, batch_shard, device_loader
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from worlds import World

eight_devices()
RECORDS = TensorDataset(torch.arange(92.0).view(23, 4), torch.arange(23))
# processes, devices of each, the mesh, the spec.
LAYOUTS = {
    "two of one": (2, 1, spmdx.Mesh(range(2), (2,), ("data",)), ("data",)),
    "three of one": (3, 1, spmdx.Mesh(range(3), (3,), ("data",)), ("data",)),
    "four of two": (4, 2, spmdx.Mesh(range(8), (8,), ("data",)), ("data",)),
    "two of four, two axes": (2, 4, spmdx.Mesh(range(8), (4, 2), ("data", "model")), ("data",)),
    "tensor parallel pairs": (4, 1, spmdx.Mesh(range(4), (2, 2), ("data", "model")), ("data",)),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@pytest.fixture
def world(layout, monkeypatch):
    """Processes as threads; a tensor is made in each of what all of them upload."""
    processes, each, mesh, _ = layout
    world = World(monkeypatch, processes, each)
    from_local = spmdx._C.from_local

    def joined(pieces, sharding, shape, dtype, digest=None):
        of = [iter(some) for some in world.meet(pieces)]
        whole = [next(of[process]) for process in splitting.processes_of(mesh)]
        return from_local(whole, sharding._handle, list(shape), dtype)

    monkeypatch.setattr(placing, "_joined", joined)
    return world


def run(world, program):
    results = world.run(program)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def host(batches):
    return [tuple(t.cpu() for t in batch) for batch in batches]


def assert_same(got, want):
    for (x, y), (x_want, y_want) in zip(got, want, strict=True):
        assert torch.equal(x, x_want) and torch.equal(y, y_want)


@layouts
@pytest.mark.parametrize("prefetch_size", [0, 2])
def test_every_process_has_the_whole_batch(layout, world, prefetch_size):
    *_, mesh, spec = layout
    plain = DataLoader(RECORDS, batch_size=5)

    def program(process):
        loader = DataLoader(RECORDS, batch_size=5)
        specs = ShardingSpec(mesh, spec)
        return list(device_loader(loader, input_sharding=specs, prefetch_size=prefetch_size))

    for batches in run(world, program):
        assert_same(host(batches), list(plain))
    assert world.exchanges == 1


def parts_of(mesh, spec, **options):
    num_replicas, rank = batch_shard(mesh, spec)
    sampler = DistributedSampler(RECORDS, num_replicas, rank, seed=2, **options)
    return DataLoader(RECORDS, batch_size=3, sampler=sampler)


def whole_batches(mesh, spec, world, epoch=0):
    """The batches of the parts of a plain program, one part after another."""
    with world.here(0):
        count, _ = batch_shard(mesh, spec)
    samplers = [DistributedSampler(RECORDS, count, rank, seed=2) for rank in range(count)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    loaders = [DataLoader(RECORDS, batch_size=3, sampler=sampler) for sampler in samplers]
    return [
        tuple(torch.cat(tensors) for tensors in zip(*batches, strict=True))
        for batches in zip(*loaders, strict=True)
    ]


@layouts
@pytest.mark.parametrize("same_shapes", [False, True])
def test_parts_of_a_distributed_sampler_are_the_global_batches(layout, world, same_shapes):
    *_, mesh, spec = layout

    def program(process):
        loader = device_loader(
            parts_of(mesh, spec),
            input_sharding=ShardingSpec(mesh, spec, minibatch=True),
            same_shapes=same_shapes,
        )
        return [list(loader) for _ in range(2)]

    epochs = [whole_batches(mesh, spec, world, epoch) for epoch in range(2)]
    for got in run(world, program):
        for batches, want in zip(got, epochs, strict=True):
            assert_same(host(batches), want)
            assert all(x.partition_spec == ("data", None) for x, _ in batches)
    with world.here(0):
        shared = batch_shard(mesh, spec)[0] < world.processes  # who has the same is compared
    per_epoch = 1 if same_shapes and not shared else len(epochs[0]) + 1
    assert world.exchanges == 2 * per_epoch


@layouts
def test_streams_of_unequal_length_give_all_their_rows(layout, world):
    *_, mesh, spec = layout
    with world.here(0):
        split = splitting.split_of(mesh, spec)

    def stream(part):
        rows = torch.arange(5.0 + 4 * part) + 100 * part
        return [(rows[i : i + 4], rows[i : i + 4]) for i in range(0, len(rows), 4)]

    def program(process):
        specs = ShardingSpec(mesh, spec, minibatch=True)
        return list(device_loader(stream(split.part_of[process]), input_sharding=specs))

    streams = [stream(part) for part in range(len(split.parts))]
    none = (torch.empty(0), torch.empty(0))
    want = [
        tuple(
            torch.cat([(some[i] if i < len(some) else none)[k] for some in streams])
            for k in range(2)
        )
        for i in range(max(map(len, streams)))
    ]
    for batches in run(world, program):
        assert_same(host(batches), want)


@layouts
def test_every_process_goes_on_from_its_position(layout, world):
    *_, mesh, spec = layout

    def loader():
        specs = ShardingSpec(mesh, spec, minibatch=True)
        return device_loader(parts_of(mesh, spec), input_sharding=specs)

    def program(process):
        first, seen = loader(), []
        for epoch in range(2):
            for batch in first:
                seen.append(batch)
                if epoch == 1:
                    break
        resumed = loader()
        resumed.load_state_dict(first.state_dict())
        return seen + list(resumed)

    want = whole_batches(mesh, spec, world, 0) + whole_batches(mesh, spec, world, 1)
    for batches in run(world, program):
        assert_same(host(batches), want)


@layouts
def test_an_error_in_one_process_ends_all(layout, world):
    *_, mesh, spec = layout

    def stream(process):
        yield torch.ones(2)
        if process == 1:
            raise OSError("the disk is gone")
        yield torch.ones(2)

    def program(process):
        specs = ShardingSpec(mesh, spec, minibatch=True)
        return list(device_loader(stream(process), input_sharding=specs))

    for process, result in enumerate(world.run(program)):
        assert isinstance(result, OSError if process == 1 else spmdx.CommError)
        assert "the disk is gone" in str(result)
