# SPDX-License-Identifier: Apache-2.0
"""Traces and measured times of a program of several processes hold what crosses between them."""

import collections
import json
import pathlib
import re
import tempfile

import spmdx
import torch
from torch.profiler import ProfilerActivity, profile

COLLECTIVE = re.compile(r"spmdx\.(\w+) axes=(\S*) bytes=(\d+)(?: at (\S+))?")

torch.manual_seed(0)
mesh = spmdx.get_1d_mesh("data")
model = torch.nn.Linear(8, 6).to("spmdx")
spmdx.fully_shard(model, mesh, axis="data")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = spmdx.mark_sharding(torch.randn(24, 8).to("spmdx"), mesh, ("data", None))


def step() -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    spmdx.mark_step()


for _ in range(3):
    step()
with profile(activities=[ProfilerActivity.CPU]) as profiled:
    step()
    step()
report = spmdx.explain()
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "trace.json"
    profiled.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
matches = [(COLLECTIVE.fullmatch(e["name"]), e["tid"]) for e in events]
found = collections.Counter((m[1], m[2], int(m[3]), m[4]) for m, _ in matches if m)
expected = collections.Counter(
    (c.kind, ",".join(c.axes), c.bytes, c.source) for c in report.collectives for _ in range(2)
)
assert expected and found == expected, (found, expected)
step_threads = {e["tid"] for e in events if e["name"].startswith("spmdx.step#")}
assert len(step_threads) == 1
waits = [e for e in events if e["name"].startswith("spmdx.wait.")]
carried = [e for e in events if COLLECTIVE.fullmatch(e["name"])]
for event in carried:  # by the queue thread, or by the step thread, which waits for it
    begun, end = event["ts"], event["ts"] + event["dur"]
    assert event["tid"] not in step_threads or any(
        wait["ts"] <= begun and end <= wait["ts"] + wait["dur"] for wait in waits
    )
assert len({e["tid"] for e in carried} - step_threads) <= 1
assert len(waits) == sum(expected.values()) and {e["tid"] for e in waits} == step_threads

measured = spmdx.profile(step, steps=3)
moved = collections.Counter(
    (op.name, ",".join(op.axes), op.bytes, op.source) for op in measured.ops if op.lane == "wire"
)
assert moved + moved == expected, (moved, expected)
assert measured.wait_ns > 0 and measured.devices == len(mesh.device_ids) // 2
assert measured.device_ns > measured.wait_ns and measured.step_ns > 0
print(f"{len(waits)} waits")
