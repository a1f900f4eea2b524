# SPDX-License-Identifier: Apache-2.0
"""What the guides to SPMD of torch_xla show, in their order: the basics, then what is advanced."""

import contextlib
import io

import numpy as np
import torch
import torch_xla
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from common import same
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from torch_xla.distributed.spmd.debugging import visualize_sharding, visualize_tensor_sharding


def the_guide_to_the_basics(devices):
    xr.use_spmd()
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.array(range(count)), (count, 1), ("data", "model"))
    assert list(mesh.shape().items()) == [("data", devices), ("model", 1)]
    assert mesh.get_logical_mesh().tolist() == [[i] for i in range(devices)]
    assert len(xr.global_runtime_device_attributes()) == devices
    t = torch.randn(8, 4).to("xla")
    xs.mark_sharding(t, mesh, ("data", "model"))
    three, one, other = (torch.randn(shape).to(torch_xla.device()) for shape in ((8, 8, 16), 8, 8))
    xs.mark_sharding(three, mesh, (None, "data", "model"))
    xs.mark_sharding(one, mesh, ("data",))
    xs.mark_sharding(other, mesh, (("data", "model"),))
    want = three.cpu().sum((1, 2)) * one.cpu() + other.cpu()
    same(three.sum((1, 2)) * one + other, want)


def the_guide_to_what_is_advanced(devices):
    mesh = xs.Mesh(np.arange(devices), (devices, 1), ("data", "model"))
    images = [torch.randn(8, 3, 4, 4) for _ in range(2)]
    spec = xs.ShardingSpec(mesh, ("data", None, None, None))
    loader = pl.MpDeviceLoader(images, torch_xla.device(), input_sharding=spec)
    for batch, want in zip(loader, images, strict=True):
        assert f"devices=[{devices},1,1,1]" in xs.wrap_if_sharded(batch).sharding_spec
        same(batch, want)
    named = [{"x": image, "y": image[:, 0, 0]} for image in images]
    specs = {"x": spec, "y": xs.ShardingSpec(mesh, ("data", None))}
    for batch in pl.MpDeviceLoader(named, torch_xla.device(), input_sharding=specs):
        assert f"devices=[{devices},1]" in xs.wrap_if_sharded(batch["y"]).sharding_spec

    device_mesh = init_device_mesh("xla", mesh_shape=(devices,))
    big = torch.randn(100, 8)
    cut = distribute_tensor(big, device_mesh, [Shard(0)])
    assert cut.placements == (Shard(0),)
    same(cut.global_tensor, big)
    assert distribute_tensor(big, device_mesh, [Replicate()]).placements == (Replicate(),)

    t = torch.randn(8, 4).to("xla")
    torch.ops.xla.dynamo_mark_sharding(
        t, list(range(devices)), [devices, 1], "('data', 'model')", "('data', 'model')"
    )
    assert f"devices=[{devices},1]" in xs.wrap_if_sharded(t).sharding_spec
    with contextlib.redirect_stdout(io.StringIO()) as out:
        visualize_tensor_sharding(t, use_color=False)
        visualize_sharding("{devices=[2,2]0,1,2,3}", use_color=False)
    assert all(f"CPU {i}" in out.getvalue() for i in range(4))
