# SPDX-License-Identifier: Apache-2.0
"""A tensor that goes to the host is copied once, into the layout and dtype that it has there."""

import pytest
import spmdx
import torch
from composites import MESHES, mesh_of
from hardware import ON_GPU
from torch.profiler import ProfilerActivity, profile

WAYS = {
    "as it is": lambda x: x.cpu(),
    "another dtype": lambda x: x.to("cpu", torch.float64),
    "channels last": lambda x: x.to("cpu", memory_format=torch.channels_last),
    "rows": lambda x: x.to("cpu", memory_format=torch.contiguous_format),
}


def with_copies(call):
    """What a call returns, and how many elements it copied."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        result = call()
    shapes = [event.input_shapes[0] for event in recorded.events() if event.name == "aten::copy_"]
    return result, sum(torch.Size(shape).numel() for shape in shapes)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mesh", [None, *MESHES])
@pytest.mark.parametrize("rows", [8, 7])
@pytest.mark.parametrize("laid_out", [torch.contiguous_format, torch.channels_last])
def test_a_copy_to_the_host_copies_once(way, mesh, rows, laid_out):
    want = torch.randn(rows, 3, 4, 5).to(memory_format=laid_out)
    x = want.to("spmdx")
    if mesh is not None:
        spmdx.mark_sharding(x, mesh_of(mesh), ("x", None, None, None))
    spmdx.sync(wait=True)
    result, copied = with_copies(lambda: WAYS[way](x))
    eager = WAYS[way](want.clone())
    assert torch.equal(result, eager) and result.dtype == eager.dtype
    assert result.stride() == eager.stride()
    assert copied == result.numel() or ON_GPU  # which copies to the host first


@pytest.mark.parametrize("spec", [(None,), ("x",)])
def test_what_is_copied_to_the_host_has_memory_of_its_own(spec):
    mesh = spmdx.Mesh(range(4), (4,), ("x",))
    x = spmdx.mark_sharding(torch.arange(8.0).to("spmdx"), mesh, spec)
    spmdx.sync(wait=True)
    host = x.cpu()
    host += 1
    assert x.tolist() == list(range(8))
    x += 3
    assert host.tolist() == list(range(1, 9))
