# SPDX-License-Identifier: Apache-2.0
"""Batches on the device equal those of the plain loader, lie as said, and keep their structure."""

import collections
import dataclasses

import pytest
import spmdx
import torch
from messages import eight_devices, message_of
from spmdx.data import ShardingSpec, device_loader
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, TensorDataset
from transformers import BatchEncoding

eight_devices()
MESHES = {
    "2": spmdx.Mesh(range(2), (2,), ("data",)),
    "3": spmdx.Mesh(range(3), (3,), ("data",)),
    "4": spmdx.Mesh([3, 1, 0, 2], (4,), ("data",)),
    "8": spmdx.Mesh(range(8), (8,), ("data",)),
    "2x4": spmdx.Mesh(range(8), (2, 4), ("model", "data")),
    "4x2": spmdx.Mesh(range(8), (4, 2), ("data", "model")),
}
Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass
class Example:
    x: torch.Tensor
    name: str


pytree.register_dataclass(Example)


def grid():
    return MESHES["4x2"]


def cut(mesh=None, *entries):
    return ShardingSpec(mesh or grid(), entries or ("data",))


def rows(count):
    return TensorDataset(torch.arange(count * 6.0).view(count, 3, 2), torch.arange(count))


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
@pytest.mark.parametrize("batch_size", [8, 5, 1])
@pytest.mark.parametrize("prefetch_size", [0, 2])
def test_batches_equal_the_loaders_and_lie_as_said(mesh, batch_size, prefetch_size):
    plain = DataLoader(rows(19), batch_size=batch_size)
    loader = device_loader(plain, input_sharding=cut(mesh), prefetch_size=prefetch_size)
    assert len(loader) == len(plain) and loader.dataset is plain.dataset
    for _ in range(2):
        count = 0
        for (x, y), (x_want, y_want) in zip(loader, plain, strict=True):
            assert torch.equal(x.cpu(), x_want) and torch.equal(y.cpu(), y_want)
            assert x.partition_spec == ("data", None, None) and y.partition_spec == ("data",)
            marked = spmdx.mark_sharding(y_want.to("spmdx"), mesh, ("data",))
            got, want = y.local_shards, marked.local_shards
            assert [s.data.tolist() for s in got] == [s.data.tolist() for s in want]
            assert [s.indices for s in got] == [s.indices for s in want]
            count += 1
        assert count == len(plain)


@pytest.mark.parametrize("entries", [("data", "model"), (("data", "model"),), (None, "data"), (1,)])
@pytest.mark.parametrize("minibatch", [False, True])
def test_any_dim_may_be_cut(entries, minibatch):
    data = torch.randn(7, 5, 3)
    spec = ShardingSpec(grid(), entries, minibatch)
    (x,) = device_loader([data], input_sharding=spec)
    assert torch.equal(x.cpu(), data)
    want = spmdx.mark_sharding(data.to("spmdx"), grid(), (*entries, None, None)[:3])
    for got, shard in zip(x.local_shards, want.local_shards, strict=True):
        assert torch.equal(got.data, shard.data)


def test_a_fresh_batch_moves_nothing():
    (x,) = device_loader([torch.randn(8, 4)], input_sharding=cut())
    y = x * 2
    spmdx.mark_step()
    assert spmdx.explain().wire_bytes == 0
    assert spmdx.get_sharding(y).spec == ("data", None)


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.complex64],
    ids=str,
)
def test_dtypes_and_strides_stay(dtype):
    data = torch.arange(24).view(4, 6).to(dtype).t()
    (x,) = device_loader([data], input_sharding=cut())
    assert x.dtype == dtype and torch.equal(x.cpu(), data)


def test_conjugates_are_resolved():
    data = torch.randn(8, 2, dtype=torch.complex64).conj()
    (x,) = device_loader([data], input_sharding=cut())
    assert torch.equal(x.cpu(), data)


def test_empty_and_scalar_tensors():
    spec = {"empty": cut(), "scalar": None}
    batch = {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
    (got,) = device_loader([batch], input_sharding=spec)
    assert got["empty"].cpu().shape == (0, 3) and got["scalar"].item() == 2.5


def test_structures_stay_and_what_is_no_tensor_is_not_touched():
    marker = object()
    batch = {
        "pair": Pair(torch.ones(4), [torch.zeros(4), "text", None]),
        "ordered": collections.OrderedDict(a=torch.ones(4, 2)),
        "example": Example(torch.ones(4), "name"),
        "encoding": BatchEncoding({"input_ids": torch.arange(4), "words": ["a"]}),
        "marker": marker,
        "nothing": (),
    }
    (got,) = device_loader([batch], input_sharding=cut())
    assert type(got["pair"]) is Pair and got["pair"].y[1:] == ["text", None]
    assert type(got["ordered"]) is collections.OrderedDict
    assert type(got["example"]) is Example and got["example"].name == "name"
    assert type(got["encoding"]) is BatchEncoding and got["encoding"]["words"] == ["a"]
    assert got["encoding"].input_ids.tolist() == [0, 1, 2, 3]
    assert got["marker"] is marker and got["nothing"] == ()
    placed = [got["pair"].x, got["pair"].y[0], got["ordered"]["a"], got["example"].x]
    assert all(isinstance(t, spmdx.ShardedTensor) for t in [*placed, got["encoding"].input_ids])
    assert batch["encoding"]["input_ids"].device.type == "cpu", "the loader's own is not changed"


def test_specs_by_key_and_nested():
    mesh = grid()
    specs = {"x": cut(mesh, "data", "model"), "deep": {"y": cut(), "z": None}, "unused": cut()}
    batch = {"x": torch.ones(4, 4), "deep": {"y": torch.ones(4), "z": [torch.ones(4)]}}
    (got,) = device_loader([batch], input_sharding=specs)
    assert got["x"].partition_spec == ("data", "model")
    assert got["deep"]["y"].partition_spec == ("data",)
    assert got["deep"]["z"][0].partition_spec == (None,), "whole on the mesh of the others"
    pair = Pair(torch.ones(4), torch.ones(4))
    (by_field,) = device_loader([pair], input_sharding={"x": cut(), "y": None})
    (by_index,) = device_loader(
        [(torch.ones(4), torch.ones(4))], input_sharding={0: cut(), 1: None}
    )
    for got in (by_field, by_index):
        assert [t.partition_spec for t in got] == [("data",), (None,)]


def test_without_specs_tensors_are_whole_or_free():
    (free,) = device_loader([torch.ones(4)])
    assert free.device.type == "spmdx" and spmdx.get_annotation(free) is None
    (whole,) = device_loader([torch.ones(4)], grid())
    assert whole.partition_spec == (None,)


def test_tensors_that_are_on_the_device_are_marked():
    (x,) = device_loader([torch.ones(8, 2).to("spmdx")], input_sharding=cut())
    assert x.partition_spec == ("data", None) and x.sum().item() == 16


def test_a_training_run_equals_plain_pytorch():
    def train(device, wrap):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8)).double()
        net = net.to(device)
        optimizer = torch.optim.AdamW(net.parameters())
        data = TensorDataset(torch.randn(21, 6).double(), torch.randn(21, 8).double())
        shuffled = torch.Generator().manual_seed(1)
        loader = wrap(DataLoader(data, batch_size=5, shuffle=True, generator=shuffled))
        for _ in range(2):
            for x, y in loader:
                if len(x) > 1:
                    torch.nn.functional.mse_loss(net(x), y).backward()
                    optimizer.step()
                    optimizer.zero_grad()
        return [p.detach().cpu() for p in net.parameters()]

    want = train("cpu", lambda loader: loader)
    got = train("spmdx", lambda loader: device_loader(loader, input_sharding=cut(), mark_step=True))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_steps_end_only_when_asked():
    def steps(**options):
        spmdx.sync(wait=True)
        spmdx.debug.reset_counters()
        kept = [x * 2 for x in device_loader([torch.ones(8)] * 3, input_sharding=cut(), **options)]
        assert len(kept) == 3
        spmdx.sync(wait=True)
        return spmdx.debug.counters()["steps"]

    assert steps() == 1 and steps(mark_step=True) == 3


def test_the_same_plan_serves_every_batch():
    loader = DataLoader(rows(32), batch_size=8)
    spmdx.sync(wait=True)
    for step, (x, _) in enumerate(device_loader(loader, input_sharding=cut(), prefetch_size=3)):
        loss = x.square().sum()
        spmdx.mark_step()
        if step == 0:
            planned = spmdx.debug.counters()["plans_compiled"]
    assert loss.item() > 0 and spmdx.debug.counters()["plans_compiled"] == planned


def test_what_does_not_fit_is_refused():
    def run(batch, specs):
        return list(device_loader([batch], input_sharding=specs))

    batch = {"x": torch.ones(4), "y": [torch.ones(4)]}
    assert message_of(spmdx.ShardingError, lambda: run(batch, {"x": cut()})) == (
        "HERE: device_loader: input_sharding says nothing of batch['y']. Expected an entry for 'y' "
        "beside 'x'. Write a ShardingSpec, or None for a tensor that every device holds whole."
    )
    said = message_of(spmdx.ShardingError, lambda: run(batch, cut(grid(), "data", None)))
    assert said.startswith("HERE: device_loader: ") and "batch['x']" in said
    assert message_of(spmdx.ShardingError, lambda: run(batch, {"x": {"a": None}, "y": None})) == (
        "HERE: device_loader: batch['x'] is a tensor, and input_sharding has a dict for it with "
        "the keys 'a'. Expected a ShardingSpec or None. Nest the dicts of input_sharding as the "
        "batch is nested."
    )
    assert message_of(spmdx.ShardingError, lambda: run(batch, ("data",))) == (
        "HERE: device_loader: input_sharding has ('data',). Expected a ShardingSpec, a dict of "
        "them by key, or None. Write spmdx.data.ShardingSpec(mesh, ('data',))."
    )
    assert message_of(spmdx.ShardingError, lambda: device_loader([], prefetch_size=-1)) == (
        "HERE: device_loader: prefetch_size is -1. Expected a number of batches. Write 2, or 0 to "
        "fetch in the loop."
    )
    assert "'rows'" in message_of(spmdx.ShardingError, lambda: ShardingSpec(grid(), ("rows",)))
    assert "('data',)" in message_of(spmdx.ShardingError, lambda: ShardingSpec(grid(), "data"))
