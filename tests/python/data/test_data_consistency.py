# SPDX-License-Identifier: Apache-2.0
"""Processes agree on what they load: sizes of parts, ends, errors, and that replicas are equal."""

import re

import pytest
import spmdx
import torch
from messages import eight_devices
from spmdx._data.consistency import Agreed, checksum
from spmdx._data.split import split_of
from worlds import World

eight_devices()


def agreed(world, loaders, always=True, spec=("data",), replicated=()):
    """[(batch, rows)] of every process, or what it raises."""
    mesh = spmdx.Mesh(range(4), (2, 2), ("data", "model"))

    def split(path, tensor):
        return None if path and path[-1] in replicated else split_of(mesh, spec)

    return world.run(lambda p: list(Agreed(iter(loaders[p]), split, always)))


def lengths(result):
    return [len(batch) for batch, _ in result]


def test_every_process_learns_the_rows_of_all(monkeypatch):
    loaders = [[torch.ones(4), torch.ones(3)], [torch.ones(4), torch.ones(1)]]
    results = agreed(World(monkeypatch, 2, 2), loaders)
    for result in results:
        assert [rows for _, rows in result] == [{(): [4, 4]}, {(): [3, 1]}]


def test_a_process_without_batches_goes_on_with_empty_parts(monkeypatch):
    loaders = [[torch.ones(4, 2)] * 3, [torch.ones(4, 2)]]
    first, second = agreed(World(monkeypatch, 2, 2), loaders)
    assert lengths(first) == [4, 4, 4] and lengths(second) == [4, 0, 0]
    assert [rows[()] for _, rows in second] == [[4, 4], [4, 0], [4, 0]]


def test_batches_of_the_same_shapes_are_agreed_on_once_an_epoch(monkeypatch):
    world = World(monkeypatch, 2, 2)
    agreed(world, [[torch.ones(4)] * 5] * 2, always=False)
    assert world.exchanges == 1
    agreed(world, [[torch.ones(4)] * 5] * 2, always=True)
    assert world.exchanges == 1 + 5 + 1, "and that they end"


def failing(count):
    yield from [torch.ones(4)] * count
    raise KeyError("damaged")


@pytest.mark.parametrize("count", [0, 2])
def test_an_error_of_one_loader_is_an_error_of_all(count, monkeypatch):
    results = agreed(World(monkeypatch, 2, 2), [failing(count), [torch.ones(4)] * 9])
    assert isinstance(results[0], KeyError)
    assert isinstance(results[1], spmdx.CommError)
    assert re.sub(r"py:\d+", "py:N", str(results[1])) == (
        "test_data_consistency.py:N: device_loader: the loader of process 0 raised KeyError: "
        "'damaged'. Expected batches of every process. See the traceback of that process."
    )


def refused(monkeypatch, loaders, **options):
    results = agreed(World(monkeypatch, 2, 2), loaders, **options)
    for result in results:
        assert isinstance(result, spmdx.ShardingError), result
        assert "test_data_consistency.py" in str(result)
    return str(results[0])


def test_batches_that_do_not_fit_together_are_refused_everywhere(monkeypatch):
    def x(*shape, dtype=None):
        return {"x": torch.zeros(*shape, dtype=dtype)}

    said = refused(monkeypatch, [[x(4, 7)], [x(4, 9)]])
    assert (
        "batch['x'] is torch.float32 (4, 7) in process 0 and torch.float32 (4, 9) in process 1. "
        "Expected the same but for rows." in said
    )
    assert "torch.int64" in refused(monkeypatch, [[x(4)], [x(4, dtype=torch.int64)]])
    both = {**x(4), "y": torch.zeros(4)}
    assert "batch['y'] is in one of them" in refused(monkeypatch, [[x(4)], [both]])
    assert "Expected the same. " in refused(monkeypatch, [[x(4)], [x(3)]], replicated=("x",))


def test_replicas_that_differ_are_refused_at_the_first_batch(monkeypatch):
    one, other = {"x": torch.tensor([1.0, 2.0])}, {"x": torch.tensor([1.0, 3.0])}
    said = refused(monkeypatch, [[one], [other]], always=False, replicated=("x",))
    assert "batch['x'] differs between processes 0 and 1, which hold the same rows." in said
    tensor_parallel = (None,)  # all rows in every process
    refused(monkeypatch, [[one], [other]], spec=tensor_parallel)
    refused(monkeypatch, [[one] * 2, [one]], spec=tensor_parallel)
    (batch, _), *_ = agreed(World(monkeypatch, 2, 2), [[one], [one]], spec=tensor_parallel)[1]
    assert batch is one


def test_ends_that_cannot_be_filled_are_refused_everywhere(monkeypatch):
    batch = {"x": torch.ones(4), "scale": torch.ones(())}
    said = refused(monkeypatch, [[batch], [batch] * 2], replicated=("scale",))
    assert "process 0 has no more batches after 1, and batch['scale'] is to be whole" in said
    said = refused(monkeypatch, [[], [torch.ones(4)]])
    assert "process 0 has no more batches after 0, and others have some." in said


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.5),
        torch.zeros(0, 3),
        torch.ones(3, 4).t(),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.bool),
        torch.ones(2, dtype=torch.complex64).conj(),
    ],
    ids=str,
)
def test_checksums_of_all_kinds(tensor):
    assert checksum(tensor) == checksum(tensor.clone())
    if tensor.numel():
        other = tensor.clone()
        other[(0,) * other.dim()] = 0
        assert checksum(other) != checksum(tensor)


def test_tensors_that_are_not_on_the_cpu_are_not_read(monkeypatch):
    x = torch.ones(4).to("spmdx")
    results = agreed(World(monkeypatch, 2, 2), [[{"x": x}]] * 2, replicated=("x",))
    assert all(result[0][0]["x"] is x for result in results)
