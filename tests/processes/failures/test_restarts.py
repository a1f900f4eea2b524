# SPDX-License-Identifier: Apache-2.0
"""Programs that a launcher starts again go on; no attempt reads what another left in the store."""

import re
import threading
import time
from functools import partial

import pytest
import spmdx
import torch.distributed as dist
from launch import Running, free_port
from restart_cases import Case, judge, launch
from spmdx._world.attempt import Attempt

DIES = """
import os, torch, spmdx
r, n = spmdx.runtime.process_index(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
mesh = spmdx.get_1d_mesh("data")
x = torch.arange(12.0).to("spmdx")
x = spmdx.mark_sharding(x, mesh, ("data",))
assert x.sum().item() == 66
if n < 2 and r == (n + 1) % spmdx.runtime.process_count():
    os._exit(3)
assert (x * 2).sum().item() == 132
os.write(1, f"attempt {n} process {r} is well\\n".encode())
"""


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
@pytest.mark.parametrize("processes", [2, 3])
def test_every_attempt_meets_anew(rendezvous, processes, tmp_path):
    (tmp_path / "dies.py").write_text(DIES)
    done = launch(tmp_path / "dies.py", processes, rendezvous, restarts=2, limit=120)
    assert done.returncode == 0, done.stdout
    well = re.findall(r"attempt 2 process (\d) is well", done.stdout)
    assert sorted(well) == [str(process) for process in range(processes)], done.stdout


@pytest.mark.parametrize("case", [Case(2, 1), Case(3, 2, "c10d"), Case(2, 5)], ids=str)
def test_training_that_is_killed_and_started_again_ends_alike(case):
    trouble, struck = judge(case)
    assert not trouble
    assert struck


def entered(store, index, count, seconds=10.0, **told):
    """What a process finds, or what it raises."""
    until = time.monotonic() + seconds
    try:
        return Attempt(store, index, count, told).enter(
            lambda: time.monotonic() < until, f"{seconds:g} seconds"
        )[1]
    except spmdx.CommError as error:
        return str(error)


def together(*calls):
    """The results of calls in threads."""
    results = [None] * len(calls)

    def do(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=do, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def store():
    return dist.TCPStore("127.0.0.1", free_port(), None, True, wait_for_workers=False)


def test_a_store_serves_one_attempt_after_another(store):
    for turn in range(3):
        found = together(*(partial(entered, store.clone(), p, 2, turn=turn) for p in (1, 0)))
        for one in found:
            assert [told["turn"] for told in one] == [turn, turn], one


def test_what_a_failed_attempt_left_behind_is_not_read(store):
    assert "2 of 3 processes are missing: 1, 2" in entered(store.clone(), 0, 3, 0.1)
    found = together(*(lambda p=p: entered(store.clone(), p, 3, turn=1) for p in (2, 1, 0)))
    assert all(len(one) == 3 and one[2]["turn"] == 1 for one in found), found


def test_a_process_that_is_late_by_an_attempt_is_refused(store, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    together(*(lambda p=p: entered(store.clone(), p, 2) for p in (0, 1)))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    said = entered(store.clone(), 1, 2)
    assert "attempt 1 has begun, and it is of attempt 0" in said and "Expected" in said


def test_jobs_that_share_a_store_do_not_meet(store, monkeypatch):
    calls = []
    for run in ("a", "b"):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", run)
        for process in (0, 1):
            attempt = Attempt(store.clone(), process, 2, {"run": run})
            calls.append(lambda attempt=attempt: attempt.enter(lambda: True, "")[1])
    found = together(*calls)
    assert [[told["run"] for told in one] for one in found] == [["a"] * 2] * 2 + [["b"] * 2] * 2


def test_two_processes_of_one_index_are_refused(store):
    first, *others = together(
        lambda: entered(store.clone(), 0, 3, 3.0),
        lambda: entered(store.clone(), 1, 3, 3.0),
        lambda: entered(store.clone(), 1, 3, 3.0),
    )
    assert "1 of 3 processes are missing: 2" in first
    assert all("missing: 2" in said for said in others)


def test_one_of_two_processes_of_one_index_is_refused(store):
    found = together(
        lambda: entered(store.clone(), 1, 2),
        lambda: entered(store.clone(), 1, 2),
        lambda: entered(store.clone(), 0, 2),
    )
    refused = [said for said in found[:2] if isinstance(said, str)]
    assert len(refused) == 1 and "another of index 1 among them" in refused[0], found


def test_a_second_process_of_an_index_that_comes_late_is_refused(store):
    together(*(lambda p=p: entered(store.clone(), p, 2) for p in (0, 1)))
    said = entered(store.clone(), 1, 2, 0.5)
    assert "waited 0.5 seconds" in said and "another of index 1 among them" in said, said


def test_processes_of_the_environment_meet_without_a_launcher():
    with Running("differ.py", 2, 1, "same", SPMDX_TIMEOUT=60) as running:
        assert [how.status for how in running.end()] == [0, 0]
