# SPDX-License-Identifier: Apache-2.0
"""What is decided for programs outlives the process: a second one searches for nothing, and files
that were damaged are as good as none."""

import json
import os
import subprocess
import sys

import pytest
from spmdx._start import plan_files

TRAINING = """
import json, sys, torch, spmdx
from torch import nn
spmdx.runtime.set_device_count(8)
mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).double().to("spmdx")
spmdx.mark_sharding(model[0].weight, mesh, ("model", None))
spmdx.mark_sharding(model[2].weight, mesh, (None, "model"))
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for rows in map(int, sys.argv[1].split(",")):
    x = torch.randn(rows, 16, dtype=torch.float64).to("spmdx")
    spmdx.mark_sharding(x, mesh, ("data", None))
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    spmdx.mark_step()
    losses.append(loss.item().hex())
print(json.dumps([losses, spmdx.debug.counters(), str(spmdx.explain())]))
"""

DAMAGE = """
import os, pathlib, random, torch, spmdx
spmdx.runtime.set_device_count(4)
mesh = spmdx.Mesh(range(4), (2, 2), ("data", "model"))
folder = pathlib.Path(os.environ["SPMDX_CACHE"]) / "plans"
a, b = torch.randn(6, 8).double(), torch.randn(8, 10).double()

def product():
    spmdx._C.clear_cache()
    x, w = a.to("spmdx"), b.to("spmdx")
    spmdx.mark_sharding(x, mesh, ("data", None))
    spmdx.mark_sharding(w, mesh, (None, "model"))
    y = (x @ w).relu()
    spmdx.mark_step()
    torch.testing.assert_close(y.cpu(), (a @ b).relu())

def searched():
    return spmdx.debug.counters()["plans_searched"]

product()
(path,) = folder.iterdir()
whole, rng = path.read_bytes(), random.Random(7)
product()
assert searched() == 1
for number in range(1000):
    kind = rng.randrange(5)
    if kind == 0:
        damaged = whole[: rng.randrange(len(whole))]
    elif kind == 1:
        damaged = whole + bytes(rng.randrange(1, 40))
    elif kind == 2:
        damaged = rng.randbytes(rng.randrange(200))
    else:
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 8))):
            damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
    if damaged == whole:
        continue
    path.write_bytes(damaged)
    before = searched()
    product()
    assert searched() == before + 1, number
    assert path.read_bytes() == whole, number
path.unlink()
path.mkdir()
product()
print("done")
"""


def run(code, *arguments, cache, **variables):
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    environment.pop("SPMDX_CACHE", None)
    if cache is not None:
        environment["SPMDX_CACHE"] = str(cache)
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def trained(sizes, cache):
    return json.loads(run(TRAINING, sizes, cache=cache).stdout)


def test_a_second_process_searches_for_nothing(tmp_path):
    sizes = "32,32,33,48,120,7"
    without, counters, plan = trained(sizes, None)
    assert counters["plans_searched"] >= 3
    first, counted, _ = trained(sizes, tmp_path)
    assert first == without and counted["plans_searched"] == counters["plans_searched"]
    second, counted, again = trained(sizes, tmp_path)
    assert second == without and again == plan
    assert counted["plans_compiled"] == counters["plans_compiled"]
    assert counted["plans_searched"] == 0


def test_damaged_files_are_as_good_as_none(tmp_path):
    assert run(DAMAGE, cache=tmp_path).stdout == "done\n"


def test_other_options_and_other_code_find_nothing(tmp_path):
    code = TRAINING.replace("mesh = ", "spmdx.set_topology('nvlink')\nmesh = ", 1)
    run(TRAINING, "8", cache=tmp_path)
    kept = len(list((tmp_path / "plans").iterdir()))
    assert json.loads(run(code, "8", cache=tmp_path).stdout)[1]["plans_searched"] == kept
    assert len(list((tmp_path / "plans").iterdir())) == 2 * kept
    assert plan_files.version().startswith("0.")


def test_a_folder_that_cannot_be_made_is_said_and_the_program_runs(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(TRAINING, "8", cache=tmp_path / "file")
    assert "where plans cannot be kept" in done.stderr
    assert json.loads(done.stdout)[1]["plans_searched"] > 0


def test_of_too_many_files_the_older_half_is_thrown_away(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_files, "MOST", 10)
    for number in range(11):
        path = tmp_path / str(number)
        path.write_text("")
        os.utime(path, (number, number))
    plan_files.throw_away_oldest(tmp_path)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [6, 7, 8, 9, 10]
    plan_files.throw_away_oldest(tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_relative_folder_is_that_of_the_import(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = plan_files.folder_of_plans({"SPMDX_CACHE": "kept"})
    assert told == str(tmp_path / "kept" / "plans")


def test_files_that_are_moved_or_thrown_away_meanwhile_are_no_error(tmp_path, monkeypatch):
    (tmp_path / "draft").symlink_to(tmp_path / "gone")
    plan_files.throw_away_oldest(tmp_path)
    monkeypatch.setattr(plan_files, "MOST", 0)
    (tmp_path / "whole").write_text("")
    plan_files.throw_away_oldest(tmp_path)
    assert not (tmp_path / "whole").exists()


OWN_OP = """
import sys, torch, spmdx
spmdx.runtime.set_device_count(8)
mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
lib = torch.library.Library("own", "DEF")
lib.define("prod(Tensor a, Tensor b) -> Tensor")
lib.impl("prod", lambda a, b: a @ b, "CPU")
lib.impl("prod", lambda a, b: a.new_empty(a.shape[0], b.shape[1]), "Meta")
spmdx.register_rule("own::prod", "ij,jk->ik", flops=float(sys.argv[1]))
a, b = torch.ones(64, 64).to("spmdx"), torch.ones(64, 64).to("spmdx")
for tensor in (a, b):
    spmdx.mark_sharding(tensor, mesh, (None, None))
z = torch.ops.own.prod(a, b).softmax(0)
spmdx.mark_sharding(z, mesh, (None, None))
spmdx.mark_step()
print(spmdx.explain().wire_bytes, spmdx.debug.counters()["plans_searched"])
"""


def test_what_an_own_op_costs_is_a_part_of_its_program(tmp_path):
    cheap = run(OWN_OP, "0", cache=tmp_path).stdout
    dear = run(OWN_OP, "1e9", cache=tmp_path).stdout
    assert dear == run(OWN_OP, "1e9", cache=None).stdout != cheap
    assert run(OWN_OP, "1e9", cache=tmp_path).stdout.split() == [dear.split()[0], "0"]


@pytest.mark.parametrize("told", ["", None])
def test_nothing_is_kept_where_no_folder_is_told(told):
    environment = {} if told is None else {"SPMDX_CACHE": told}
    assert plan_files.folder_of_plans(environment) == ""
