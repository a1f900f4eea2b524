# SPDX-License-Identifier: Apache-2.0
"""A trace that nobody ends is cut at the same op in all processes, whoever holds what it read."""

from launch import run

LOOP = """
import torch, spmdx
here = spmdx.runtime.process_index()
mesh = spmdx.get_1d_mesh("data")
weight = spmdx.mark_sharding(torch.ones(1024, 2).to("spmdx"), mesh, ("data", None))
batch = torch.ones(4096, 1024)  # 16 MiB
total, held = torch.zeros(2, device="spmdx"), []
for step in range(100):
    x = batch.to("spmdx")
    if here:
        held = [*held[-1:], x]  # what dies in one process lives on in the other
    dead = (x * 2).sum()
    if step % 2:
        total += (x @ weight).sum(0)
cuts = spmdx.debug.counters()["implicit_syncs"]
print(cuts, total.cpu().tolist() == [50 * 4096 * 1024.0] * 2)
"""


def test_processes_cut_alike():
    for said in run(LOOP, 2, 1, SPMDX_TIMEOUT=60):
        assert said.split() == ["2", "True"]
