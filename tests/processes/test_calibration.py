# SPDX-License-Identifier: Apache-2.0
"""Several processes measure together, agree on what they found, and plan alike with it."""

import json
import os

import pytest
import torch
from launch import run

MEASURED = """
import dataclasses, json, pathlib, sys
import spmdx, torch

drawn = torch.get_rng_state()
pending = torch.ones(4).to("spmdx") + 1
path = pathlib.Path(sys.argv[1])
found = spmdx.calibrate(path, devices=2)
assert torch.equal(torch.get_rng_state(), drawn) and pending.tolist() == [2.0] * 4
for refused, within in (("nothing runs", spmdx.plan_only), ("a step is measured", None)):
    try:
        if within is None:
            spmdx.profile(lambda: spmdx.calibrate(), warmup=0, steps=1)
        else:
            with within():
                spmdx.calibrate()
    except spmdx.ShardingError as error:
        assert refused in str(error), error
    else:
        raise AssertionError(refused)
print(json.dumps(dataclasses.asdict(found)))
"""


@pytest.mark.parametrize("own", [1, 2])
def test_processes_measure_the_same_machine(tmp_path, own):
    """Figures are noise, so that two processes find the same only if they agree."""
    path = tmp_path / "links.json"
    first, *others = map(json.loads, run(MEASURED, 2, own, str(path)))
    assert others == [first]
    sizes = [level["devices"] for level in first["levels"]]
    assert sizes == ([0] if own == 1 else [2, 0])  # within a process, and beyond
    for level in first["levels"]:
        assert level["latency_ns"] > 0 and level["picoseconds_per_byte"] > 0
    shares = [share for _, share in first["levels"][-1]["efficiency"]]
    assert len(shares) > 1 and max(shares) > 0.9 and min(shares) > 0
    assert first["hardware"]["launch_ns"] > 0
    for name in ("native_gathers", "native_sums"):
        assert first["levels"][0][name] == [] or own == 1  # the backend joins processes alone
        sizes, times = zip(*first["levels"][-1][name], strict=True)
        assert list(sizes) == sorted(sizes) and min(times) > 0
    if own == 2:  # a process runs them one after the other
        assert first["processors"] == first["record_ns"] == 0
    else:
        assert (first["record_ns"] > 0) == (first["processors"] > 0)
    written = json.loads(path.read_text())
    assert written["levels"] == first["levels"]


SHARING = """
import os, sys
import spmdx, torch
from spmdx._machine.sharing import shared_processors
from spmdx._world import processes

torch.set_num_threads(int(sys.argv[2]))
cores = sorted(os.sched_getaffinity(0))
own = cores[processes.process_index() % 2]
mine = {"one": cores[:1], "two": cores[:2], "own": [own]}[sys.argv[1]]
os.sched_setaffinity(0, mine)
print(shared_processors())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core")
@pytest.mark.parametrize(
    ("cores", "threads", "count", "found"),
    [("one", 1, 2, 1), ("two", 1, 2, 2), ("own", 1, 2, 2), ("own", 2, 2, 1), ("two", 1, 3, 2)],
)
def test_devices_share_the_cores_that_their_processes_may_use(cores, threads, count, found):
    assert run(SHARING, count, 1, cores, str(threads)) == [f"{found}\n"] * count


def test_a_core_to_spare_is_none_that_devices_share():
    program = SHARING.replace(
        "shared_processors())", "processes.device_count(), shared_processors())"
    )
    assert run(program, 1, 1, "one", "1") == ["1 0\n"]


SEARCHED = """
import spmdx, torch

spmdx.set_topology(spmdx.calibrate())
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
model = model.to("spmdx")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step(batches):
    for x in batches:
        loss = model(x).square().mean() / len(batches)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()

batch = torch.ones(8, 8)
plan = spmdx.auto.search(step, model, optimizer, batch)
plan.apply(model, optimizer)
for _ in range(2):
    step(plan.split(batch))
    spmdx.mark_step()
print(sum(p.double().sum().item() for p in model.parameters()))
"""


def test_a_strategy_is_searched_for_with_what_was_measured():
    torch.manual_seed(0)
    parts = torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)
    model = torch.nn.Sequential(*parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(8, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    expected = sum(p.double().sum().item() for p in model.parameters())
    found = [float(text) for text in run(SEARCHED, 2)]
    assert found == pytest.approx([expected] * 2, abs=1e-5)
