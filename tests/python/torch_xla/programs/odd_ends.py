# SPDX-License-Identifier: Apache-2.0
"""What a hunt for defects has found: it stays mended."""

import collections
import copy
import dataclasses
import pickle
import types

import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
from common import line, refused, same
from torch.nn.utils.rnn import pack_sequence
from torch_xla.distributed.spmd.xla_sharding import apply_xla_patch_to_nn_linear
from torch_xla.utils import utils


class _Batch(collections.UserDict):
    """As tokenizers give them."""


@dataclasses.dataclass
class _Pair:
    x: torch.Tensor
    name: str


def shards_go_to_the_devices_that_they_name(devices):
    want = torch.arange(float(2 * devices + 1))
    t = want.clone().to("xla")
    marked = xs.mark_sharding(t, line(devices), (0,))
    shards = marked.local_shards
    marked.load_local_shards_(shards[::-1])
    same(t, want)
    data, places = [s.data for s in shards[::-1]], [s.shard_device for s in shards[::-1]]
    torch_xla._XLAC._load_local_shards(t, data, places)
    same(t, want)
    with refused(RuntimeError, "Expected one for each of"):
        marked.load_local_shards_([shards[0]] * devices)
    same(t, want)


def autocast_is_to_bfloat16_unless_told_otherwise(devices):
    a = torch.randn(4, 4).to("xla")
    assert torch.get_autocast_dtype("xla") == torch.bfloat16
    with torch.autocast("xla"):
        assert (a @ a).dtype == torch.bfloat16
    with torch.autocast("xla", dtype=torch.float16):
        assert (a @ a).dtype == torch.float16 and torch.get_autocast_dtype("xla") == torch.float16
    with torch.autocast("xla", enabled=False):
        assert (a @ a).dtype == torch.float32
    layer = apply_xla_patch_to_nn_linear(torch.nn.Sequential(torch.nn.Linear(4, 2))).to("xla")
    with torch.autocast("xla"):
        assert layer(a).dtype == torch.bfloat16


def the_parts_of_amp_are_what_they_are_in_torch_xla(devices):
    from torch_xla.amp import GradScaler, autocast, syncfree

    assert syncfree.AdamW is torch.optim.AdamW
    assert GradScaler(1024.0).get_scale() == GradScaler(init_scale=1024.0).get_scale() == 1024.0
    a = torch.randn(4, 4).to("xla")
    with autocast(torch_xla.device(), dtype=None):
        assert (a @ a).dtype == torch.bfloat16


def a_default_device_is_that_of_all_that_is_made(devices):
    for place in ("xla", torch_xla.device()):
        with torch.device(place):
            assert {t.device.type for t in (torch.ones(1), torch.tensor([1.0]))} == {"xla"}
            assert torch.as_tensor([1, 2]).device.type == "xla"
            assert torch.tensor([1.0], device="cpu").device.type == "cpu"
    torch.set_default_device("xla")
    try:
        assert torch.get_default_device() == torch.device("xla:0")
        assert torch.tensor([1.0]).device.type == torch.ones(1).device.type == "xla"
    finally:
        torch.set_default_device(None)
    assert torch.tensor([1.0]).device.type == "cpu"


def batches_of_any_class_go_to_the_device(devices):
    x = torch.randn(4, 3)
    batches = [_Batch(x=x), _Pair(x, "a"), types.SimpleNamespace(x=[x])]
    one, two, three = pl.MpDeviceLoader(batches, torch_xla.device())
    assert isinstance(one, _Batch) and isinstance(two, _Pair) and two.name == "a"
    for got in (one["x"], two.x, three.x[0]):
        assert got.device.type == "xla"
        same(got, x)
    assert batches[0]["x"] is batches[1].x is x
    rows = xs.ShardingSpec(line(devices), (0, None))
    (cut,) = pl.MpDeviceLoader([_Batch(x=x)], torch_xla.device(), input_sharding={"x": rows})
    assert isinstance(cut, _Batch) and xs.wrap_if_sharded(cut["x"]).sharding_spec
    packed = pack_sequence([torch.randn(3, 2), torch.randn(2, 2)])
    (moved,) = pl.MpDeviceLoader([packed], torch_xla.device())
    assert moved.batch_sizes.device.type == "cpu"
    same(moved.data, packed.data)
    ring = types.SimpleNamespace(x=x)
    ring.itself = ring
    seen = []
    utils.for_each_instance(ring, torch.is_tensor, seen.append)
    assert len(seen) == 1 and seen[0] is x


def there_is_one_logical_device_whoever_is_asked(devices):
    for make in (lambda: torch.ones(2, device="xla:1"), lambda: torch.tensor([1], device="xla:7")):
        with refused(RuntimeError, "there is one logical device"):
            make()


def sharded_tensors_are_copied_and_read(devices):
    x = torch.randn(9, 2)
    marked = xs.mark_sharding(x.to("xla"), line(devices), (0, None))
    for again in (copy.deepcopy(marked), pickle.loads(pickle.dumps(marked))):
        assert type(again) is type(marked) and again.sharding_spec == marked.sharding_spec
        same(again.global_tensor, x)
    same(marked.full_tensor(), x)
    with refused(NotImplementedError, "local_shards"):
        marked.to_local()
