# SPDX-License-Identifier: Apache-2.0
"""Replicas stay equal bit for bit, whatever reads what processes have exchanged."""

import pytest
from launch import Running, run


@pytest.mark.parametrize("processes", [2, 3])
def test_replicas_that_an_exchange_leaves_are_rounded_alike_by_what_reads_them(processes):
    with Running("strides.py", processes, 1, SPMDX_TIMEOUT=60) as running:
        said = [process.out for process in running.end()]
    assert said[0].count("0x") == 8 * 8
    assert all(out == said[0] for out in said)


READS = """
import torch, spmdx

here = spmdx.runtime.process_index()
mesh = spmdx.get_1d_mesh("data")
x = spmdx.mark_sharding(torch.arange(6.0).to("spmdx"), mesh, ("data",))
loss, row = x.sum(), spmdx.mark_sharding(x * 2, mesh, (None,))
layer = torch.nn.Linear(2, 1, bias=False).to("spmdx")
torch.nn.init.ones_(spmdx.mark_sharding(layer.weight, mesh, (None, None)))
spmdx.mark_step()
if here == 0:
    print(loss, [loss], f"{loss:.1f}", repr(row), layer.weight, layer.state_dict())
print((x + loss + row.sum()).sum().item())
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_one_process_alone_prints_what_all_hold(processes):
    first, *others = run(READS, processes, SPMDX_TIMEOUT=60)
    assert others == ["285.0\n"] * (processes - 1) and first.endswith("285.0\n")
    for text in (
        "tensor(15., device='spmdx:0') [tensor(15., device='spmdx:0')] 15.0 ShardedTensor([ 0.,",
        "Parameter containing:\nShardedTensor([[1., 1.]], device='spmdx:0', requires_grad=True, ",
        "OrderedDict([('weight', tensor([[1., 1.]], device='spmdx:0'))])",
    ):
        assert text in first, first
