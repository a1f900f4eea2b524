# SPDX-License-Identifier: Apache-2.0
"""After recover() what was marked before holds for all processes, or for none."""

import pytest
from launch import run

# By what a step or a process marks before all have agreed on it; docs/many_processes.md lists them.
KINDS = (
    "values",
    "loader",
    "half_compared",
    "steps",
    "own",
    "in_flight",
    "drawn",
    "copies",
    "pending",
    "ahead",
    "moved",
    "overwrites",
    "turns",
    "unseen",
)
HALF_DONE = ("ahead", "moved", "overwrites", "unseen")  # a step ran in some processes only


@pytest.mark.parametrize(
    "kind, processes, devices",
    [*((kind, 2, 1) for kind in KINDS), *((kind, 3, 1) for kind in KINDS), ("values", 2, 2)],
)
def test_processes_that_recover_go_on_alike(kind, processes, devices):
    player = "recovers_half_done.py" if kind in HALF_DONE else "recovers.py"
    for said in run(player, processes, devices, kind, SPMDX_TIMEOUT=60):
        assert said.endswith("well\n")


@pytest.mark.parametrize("kind", HALF_DONE)
def test_those_that_use_native_collectives_do_so_too(kind):
    settings = {"SPMDX_TIMEOUT": 60, "SPMDX_COLLECTIVES": "native"}
    for said in run("recovers_half_done.py", 3, 1, kind, **settings):
        assert said.endswith("well\n")


def test_a_save_after_one_that_some_had_begun(tmp_path):
    for said in run("recovers.py", 2, 1, "checkpoints", str(tmp_path), SPMDX_TIMEOUT=60):
        assert said.endswith("well\n")


def test_a_recovery_that_ctrl_c_breaks_off_may_be_tried_again():
    for said in run("recovers.py", 2, 1, "interrupted", SPMDX_TIMEOUT=60):
        assert said.endswith("well\n")


def test_who_recovers_alone_names_the_others():
    run("recovers.py", 2, 1, "alone", SPMDX_TIMEOUT=4)


REPLICAS = """
import torch, spmdx
here = spmdx.runtime.process_index()
mesh = spmdx.get_1d_mesh("data")
x = spmdx.ShardedTensor.from_local_shards([torch.full((2,), float(here))], mesh, (None,))
for _ in range(2):
    try:
        print("read", x.cpu().tolist())
    except spmdx.CommError as error:
        print(error)
        spmdx.runtime.recover()
print((x * 0).sum().item())
"""


def test_replicas_that_differ_are_told_where_that_is_asked_for():
    for rank, said in enumerate(run(REPLICAS, 2, 1, SPMDX_CHECK="replicas", SPMDX_TIMEOUT=60)):
        told = f"program.py:8: process {1 - rank} (pid "
        assert said.count(told) == 2 and said.count("reads another value") == 2, said
        assert said.endswith("0.0\n") and "read [" not in said, said
    for rank, said in enumerate(run(REPLICAS, 2, 1)):
        assert said.count(f"read [{rank}.0, {rank}.0]") == 2, said
