# SPDX-License-Identifier: Apache-2.0
"""spmdx.accumulate: gradients as of plain accumulation, and the bytes that it says it saves."""

import pytest
import spmdx
import torch
from torch import nn

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

MODES = ["data parallel", "fully sharded"]


def network(dtype=torch.float32):
    torch.manual_seed(0)
    layers = nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)
    return nn.Sequential(*layers).to(dtype)


def lay_out(net, mesh, mode):
    net.to("spmdx")
    if mode == "fully sharded":
        spmdx.fully_shard(net, mesh)
    else:
        spmdx.nn.shard_module(net, mesh, {"*": (...,)})
    return net


def microbatches(count, rows, mesh=None, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    for i in range(count):
        x = torch.randn(rows + i % 2, 16, generator=generator).to(dtype)
        yield x if mesh is None else spmdx.mark_sharding(x.to("spmdx"), mesh, ("data", ...))


def backward(net, x, count):
    loss = net(x).square().mean() / count
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 3])
def test_training_equals_plain_accumulation_on_one_device(devices, mode, count):
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    here = network(torch.float64)
    there = lay_out(network(torch.float64), mesh, mode)
    results = []
    for net, on in ((here, None), (there, mesh)):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        for _ in range(2):
            losses, block = [], spmdx.accumulate(net, measure=False)
            with block:
                for x in microbatches(count, 7, on, torch.float64):
                    losses.append(backward(net, x, count))
                    spmdx.mark_step()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.mark_step()
        results.append([x.detach().cpu() for x in (*losses, *net.parameters())])
        assert on is None or block.microbatches == count and not block.ran_inside
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def run_apart(net, mesh, count):
    """The bytes of all steps, where each microbatch is one."""
    total = 0
    for x in microbatches(count, 512, mesh):
        backward(net, x, count)
        spmdx.mark_step()
        total += spmdx.explain().wire_bytes
    return total


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("mode", MODES)
def test_it_saves_the_bytes_that_it_says(devices, mode):
    mesh, count = spmdx.Mesh(range(devices), (devices,), ("data",)), 4
    apart = run_apart(lay_out(network(), mesh, mode), mesh, count)
    net = lay_out(network(), mesh, mode)
    spmdx.mark_step()
    with spmdx.accumulate(net) as block:
        for x in microbatches(count, 512, mesh):
            backward(net, x, count)
            spmdx.mark_step()
    spmdx.mark_step()
    together = spmdx.explain().wire_bytes
    assert (block.bytes_apart, block.bytes_together) == (apart, together)
    assert block.saved_bytes == apart - together
    whole = sum(p.numel() for p in net.parameters()) * 4
    sums = 2 * whole * (devices - 1) // devices  # of gradients, and gathers of parameters likewise
    assert abs(together - sums) <= sums // 50 and apart == count * together
    said = f"4 microbatches in one step: a device receives {together:,} bytes, not {apart:,}"
    assert repr(block).startswith(said)
    assert block.peak_together > block.peak_apart > 0


def test_every_way_to_end_a_step_ends_a_microbatch_and_runs_nothing():
    mesh = spmdx.get_1d_mesh("data")
    net = lay_out(network(), mesh, "data parallel")
    spmdx.mark_step()
    spmdx.sync(wait=True)
    steps = spmdx.debug.counters()["steps"]
    with spmdx.accumulate(net) as block:
        for end in (spmdx.mark_step, spmdx.sync, spmdx.mark_step):
            backward(net, next(microbatches(1, 8, mesh)), 4)
            end()
            spmdx.mark_step()  # nothing happened since
        with spmdx.step():
            backward(net, next(microbatches(1, 8, mesh)), 4)
        backward(net, next(microbatches(1, 8, mesh)), 4)  # the end of the block ends it
    assert block.microbatches == 5 and spmdx.debug.counters()["steps"] == steps
    spmdx.sync(wait=True)
    assert spmdx.debug.counters()["steps"] == steps + 1


def test_loaders_within_the_block_end_no_step():
    mesh = spmdx.get_1d_mesh("data")
    net = lay_out(network(), mesh, "fully sharded")
    spmdx.mark_step()
    rows, spec = list(microbatches(3, 8)), spmdx.data.ShardingSpec(mesh, ("data",))
    loader = spmdx.data.device_loader(rows, input_sharding=spec, mark_step=True)
    with spmdx.accumulate(net, measure=False) as block:
        for x in loader:
            backward(net, x, 3)
    assert block.microbatches == 3 and not block.ran_inside
    assert repr(block) == "3 microbatches in one step, not measured"


@pytest.mark.parametrize("read", [torch.Tensor.item, torch.Tensor.cpu, str, "wait"])
def test_a_value_that_is_read_within_is_told(read):
    mesh = spmdx.get_1d_mesh("data")
    net = lay_out(network(), mesh, "data parallel")
    spmdx.mark_step()
    with spmdx.accumulate(net) as block:
        for x in microbatches(2, 8, mesh):
            loss = backward(net, x, 2)
            spmdx.sync(wait=True) if read == "wait" else read(loss)
            spmdx.mark_step()
    assert block.ran_inside and block.saved_bytes is None
    assert "Read it behind the block" in repr(block)


def test_errors_leave_steps_as_they_were():
    net = network()
    with pytest.raises(spmdx.ShardingError, match="Expected a torch.nn.Module"):
        spmdx.accumulate(net.parameters())
    block = spmdx.accumulate(net)
    with block, pytest.raises(spmdx.ShardingError, match="open already"), block:
        pass
    with pytest.raises(KeyError), block:
        raise KeyError
    x = torch.ones(3).to("spmdx") + 1
    syncs = spmdx.debug.counters()["implicit_syncs"]
    spmdx.mark_step()
    assert x.tolist() == [2, 2, 2]
    assert spmdx.debug.counters()["implicit_syncs"] == syncs
