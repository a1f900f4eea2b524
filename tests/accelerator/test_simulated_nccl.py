# SPDX-License-Identifier: Apache-2.0
"""The simulated NCCL group: many messages are one work, for which streams wait and hosts do not."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from simulated_place import HERE, LIBRARY

pytestmark = pytest.mark.skipif(
    torch.version.cuda is not None, reason="this PyTorch has a CUDA device of its own"
)
PRELUDE = f"""
import os, sys, time
sys.path.insert(0, {HERE!r})
from datetime import timedelta
from simulated_place import expect, load_nccl
import torch, torch.distributed as dist
LIBRARY = {str(LIBRARY)!r}
torch.ops.load_library(LIBRARY)
simulated_nccl = load_nccl()
sim = torch.ops.simulated_cuda
device = sim.to_device
here, count = int(sys.argv[1]), int(sys.argv[2])
others = [process for process in range(count) if process != here]
store = dist.FileStore(sys.argv[3], count)
gloo = dist.ProcessGroupGloo(store, here, count, timedelta(seconds=60))
group = simulated_nccl.make(gloo)

def nowhere(length):
    return device(torch.full((length,), -7.0))

def exchange(out, into):
    group._start_coalescing()
    for process in others:
        assert group.recv([into[process]], process, 0) is None
    for process in others:
        assert group.send([out[process]], process, 0) is None
    return group._end_coalescing()

def ended(work, seconds=20):
    until = time.monotonic() + seconds
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.001)
    return work.is_completed()
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program as so many processes."""

    def runs(program: str, count: int = 2, **environment):
        text = PRELUDE + textwrap.dedent(program)
        meeting = str(tmp_path / "meeting")
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", text, str(here), str(count), meeting],
                env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"} | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for here in range(count)
        ]
        try:
            said = [process.communicate(timeout=120)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        assert [process.returncode for process in processes] == [0] * count, "\n".join(said)

    return runs


@pytest.mark.parametrize("count", [2, 3])
def test_each_sends_to_each_in_one_group(run, count):
    run(
        """
        assert group.name() == "nccl" and group.supports_coalescing
        assert (group.rank(), group.size()) == (here, count)
        for turn in range(20):
            out = [device(torch.arange(1000.0)) + 100 * here + to + turn for to in range(count)]
            into = [nowhere(1000) for _ in range(count)]
            exchange(out, into).wait()
            for process in others:
                want = torch.arange(1000.0) + 100 * process + here + turn
                assert torch.equal(sim.to_host(into[process]), want)
        group._start_coalescing()
        assert group._end_coalescing() is None  # an empty group is no work
        """,
        count,
    )


def test_a_wait_is_of_the_stream_not_of_the_host(run):
    run(
        """
        out, into = [device(torch.full((100,), 1.0 + here))] * 2, [nowhere(100), nowhere(100)]
        into[0] * 2  # the first product makes PyTorch load much
        sim.synchronize()
        work = exchange(out, into)
        assert not work.is_completed()
        assert sim.to_host(into[1 - here]).eq(-7).all()  # nothing is ordered yet
        assert work.wait()
        doubled = into[1 - here] * 2
        assert not work.is_completed()  # so nothing has made the host wait
        assert sim.to_host(doubled).eq(4 - 2 * here).all()
        assert work.is_completed() and work.is_success() and work.exception() is None
        """,
        SIMULATED_NCCL_DELAY_US="3000000",
    )


def test_messages_wait_for_the_stream_up_to_where_they_were_given(run):
    run("""
        x, into = device(torch.ones(100)), nowhere(100)
        x + x.add_(0)  # the first sum makes PyTorch load much
        sim.synchronize()
        sim.set_delay(300_000)
        x.add_(1)
        group._start_coalescing()
        group.recv([into], 1 - here, 0)
        group.send([x], 1 - here, 0)
        sim.set_delay(3_000_000)
        x.add_(1)
        late = sim.record_event()
        assert ended(group._end_coalescing()) and not sim.query_event(late)
        sim.use_stream(1)
        assert sim.to_host(into).eq(2).all()
    """)


def test_a_group_keeps_its_tensors_until_it_has_ended(run):
    run(
        """
        out, into = [device(torch.ones(100) + here)] * 2, [nowhere(100), nowhere(100)]
        came = into[1 - here]
        work = exchange(out, into)
        held = sim.allocated_bytes()
        del out, into
        assert sim.allocated_bytes() == held - 512  # a landing that no message uses
        other = [device(torch.full((100,), 9.0)) for _ in range(4)]
        work.wait()
        assert sim.to_host(came).eq(2 - here).all()
        """,
        SIMULATED_NCCL_DELAY_US="300000",
    )


def test_messages_outside_of_a_group_take_their_turn(run):
    run("""
        x, y = device(torch.ones(4) + here), nowhere(4)
        first, second = (group.send, group.recv) if here == 0 else (group.recv, group.send)
        a, b = ([x], [y]) if here == 0 else ([y], [x])
        first(a, 1 - here, 0)
        second(b, 1 - here, 0).wait()
        assert sim.to_host(y).eq(2 - here).all()

        # Both send first: neither receive begins.
        works = [group.send([x], 1 - here, 0), group.recv([y], 1 - here, 0)]
        assert not ended(works[0], 0.5) and not ended(works[1], 0.1)
        store.set(f"seen/{here}", "")
        store.wait(["seen/0", "seen/1"])
        group.abort()
        assert all(ended(work) and not work.is_success() for work in works)
        assert "aborted" in str(works[1].exception()), works[1].exception()
    """)


def test_what_nccl_does_not_send_is_refused(run):
    run(
        """
        x = device(torch.ones(4, 4))
        expect(ValueError, "must be CUDA", group.send, [torch.ones(4)], 1, 0)
        expect(ValueError, "must be contiguous", group.recv, [x.t()], 1, 0)
        expect(RuntimeError, "Unconvertible", group.recv, [x.to(torch.int16)], 1, 0)
        expect(RuntimeError, "Unconvertible", group.recv, [x.to(torch.complex64)], 1, 0)
        expect(RuntimeError, "no group is open", group._end_coalescing)
        group._start_coalescing()
        expect(ValueError, "must be CUDA", group.send, [torch.ones(4)], 1, 0)
        assert group._end_coalescing() is None
        """,
        count=1,
    )


def test_a_process_that_dies_is_an_exception_of_the_work(run):
    run(
        """
        into, out = [nowhere(4) for _ in range(3)], [device(torch.ones(4))] * 3
        exchange(out, into).wait()
        sim.synchronize()
        store.set(f"well/{here}", "")
        store.wait([f"well/{process}" for process in range(count)])
        if here == 2:
            os._exit(0)
        work = exchange(out, into)
        assert ended(work, 10)
        assert not work.is_success()
        assert isinstance(work.exception(), RuntimeError), work.exception()
        assert work.wait()  # it is the stream that waits, and it goes on
        sim.synchronize()
        later = exchange(out, into)
        assert ended(later, 10) and not later.is_success()
        """,
        count=3,
    )
