# SPDX-License-Identifier: Apache-2.0
"""Processes that go on after an error; what one of them had marked by then holds for none of them.

    recovers.py KIND

Each kind ends with "well", printed by every process, or fails.
"""

import os
import sys
import time
from functools import partial

import spmdx
import torch
from recovering import COUNT, HERE, LAST, MESH, numbers, refused, replica, used, works


def values() -> None:
    """A tensor that differs is refused as often as it is used."""
    bad = replica(float(HERE + 1))
    for _ in range(3):
        said = refused(partial(used, bad))
        assert "feed different values" in said and "digest" in said, said
    del bad  # annotated, it would have its place in every step
    works()


def loader() -> None:
    """So is a batch that is to be the same in all."""
    spec = spmdx.data.ShardingSpec(MESH, (None,))
    batches = [torch.zeros(4), torch.full((4,), float(HERE))]
    second = list(spmdx.data.device_loader(batches, input_sharding=spec))[1]
    for _ in range(2):
        said = refused(partial(used, second))
        assert "feed different values" in said and "digest" in said, said
    del second
    works()


def half_compared() -> None:
    """What was compared by all is not refused; a right input is accepted after a failure."""
    x, y = replica(1.0), replica(2.0)
    (x + 1).cpu()
    refused(lambda: (y * (1 + HERE)).sum().item())
    assert (x + y).cpu().tolist() == [3.0] * 4
    works()


def steps() -> None:
    """Processes that have begun different numbers of steps count alike afterwards."""
    x = numbers()

    def more() -> None:
        for _ in range(1 + HERE):
            (x * (1 + HERE)).sum()
            spmdx.mark_step()
        x.sum().item()

    refused(more)
    works()
    said = refused(lambda: (x + 1 if HERE else x * 2).sum().item())
    assert "run different programs" in said and "aten.add" in said and "aten.mul" in said, said
    works()


def own() -> None:
    """An error that one process has of its own is told to those who wait, at once."""
    x = numbers()
    x.sum().item()
    begun = time.monotonic()

    def act() -> None:
        if HERE == 0:
            raise ValueError("a bad record")
        x.sum().item()

    said = refused(act, ValueError)
    if HERE:
        assert "process 0 (pid" in said and "has called recover() after 1 steps" in said, said
        assert "ValueError: a bad record (recovering.py:" in said, said
    assert time.monotonic() - begun < 10
    works()


def in_flight() -> None:
    """A step that all have begun is not spoiled by an error that comes after it."""
    x = numbers()
    total = x.sum()
    with torch.no_grad():
        x += 1
    spmdx.mark_step()

    def act() -> None:
        if HERE == 0:
            raise ValueError("later")
        time.sleep(0.5)
        (x * 3).sum().item()

    refused(act, ValueError)
    assert total.item() == sum(range(4 * COUNT))
    assert x.sum().item() == sum(range(4 * COUNT)) + 4 * COUNT
    works()


def drawn() -> None:
    """Random numbers go on alike, however many a process had drawn."""
    torch.manual_seed(5)

    def act() -> None:
        if HERE == LAST:
            raise ValueError("before it draws")
        (torch.rand(4, device="spmdx") + replica()).cpu()

    refused(act, ValueError)
    drawn = spmdx.mark_sharding(torch.rand(8, device="spmdx"), MESH, (None,)).cpu()
    torch.manual_seed(5)
    torch.rand(4, device="spmdx")
    assert torch.equal(drawn, torch.rand(8, device="spmdx").cpu())
    works()


def copies() -> None:
    """A copy of a whole tensor that one process alone made beside a step is undone with it."""
    made = [replica(3.0), spmdx.mark_sharding(numbers(), MESH, ("data",)), replica(5.0)]
    left = [t.clone() for t in made]
    others = [replica(7.0), spmdx.mark_sharding(numbers() * 2, MESH, ("data",))]
    others.append(torch.full((4,), 9.0))
    spmdx.mark_step()
    used(made[1])

    def act() -> None:
        if HERE != 0:
            raise ValueError("of one process")
        for target, source in zip(made, others, strict=True):
            target.copy_(source)
        (made[0] * 2).sum().item()

    refused(act, ValueError, spmdx.CommError)
    for target, was in zip(made, left, strict=True):
        assert torch.equal(target.cpu(), was.cpu()), target
    assert (made[2] * 2).sum().item() == (left[2] * 2).sum().item()
    works()


def pending() -> None:
    """What one process had recorded, and others had begun, changes nothing."""
    x, kept = numbers(), numbers()
    spmdx.mark_step()

    def act() -> None:
        with torch.no_grad():
            x.mul_(2)
        if HERE == 0:
            raise ValueError("before the step ends")
        x.sum().item()

    refused(act, ValueError)
    assert torch.equal(x.cpu(), kept.cpu())
    with torch.no_grad():
        x.mul_(3)
    assert torch.equal(x.cpu(), kept.cpu() * 3)
    works()


def turns() -> None:
    """Exchanges of values between the processes are those of one turn."""
    piece = torch.full((2,), float(HERE))

    def gathered() -> torch.Tensor:
        return spmdx.ShardedTensor.from_local_shards([piece], MESH, ("data",))

    gathered()

    def act() -> None:
        if HERE == LAST:
            raise ValueError("before it gives its shard")
        gathered()

    said = refused(act, ValueError)
    assert HERE == LAST or said.startswith("recovers.py:"), said
    x = spmdx.ShardedTensor.from_local_shards([piece + 1], MESH, ("data",))
    assert x.cpu().tolist() == [p + 1.0 for p in range(COUNT) for _ in range(2)]
    works()


def checkpoints() -> None:
    """Saves that some processes have begun are others than those that follow."""
    folder = sys.argv[2]
    state = {"x": numbers(), "word": "first"}

    def act() -> None:
        if HERE == LAST:
            raise ValueError("before it saves")
        spmdx.checkpoint.save(state, os.path.join(folder, "c"))

    refused(act, ValueError, spmdx.checkpoint.CheckpointError)
    state["word"] = "second"
    spmdx.checkpoint.save(state, os.path.join(folder, "c"))
    state["word"] = ""
    spmdx.checkpoint.load(state, os.path.join(folder, "c"))
    assert state["word"] == "second"
    works()


def interrupted() -> None:
    """A process that is broken off while it waits to recover may try again."""
    import _thread
    import threading

    x = numbers()
    x.sum().item()
    if HERE == 0:
        threading.Timer(1.0, _thread.interrupt_main).start()
        try:
            spmdx.runtime.recover()
        except KeyboardInterrupt:
            print("broken off", flush=True)
        else:
            raise AssertionError("the others came early")
        said = None
        try:
            x.sum().item()
        except spmdx.CommError as error:
            said = str(error)
        assert said and "was broken off" in said, said
        spmdx.runtime.recover()
    else:
        time.sleep(3)
        refused(lambda: x.sum().item())
    works()


def alone() -> None:
    """Who recovers alone is told who does not come."""
    numbers().sum().item()
    if HERE:
        time.sleep(float(os.environ["SPMDX_TIMEOUT"]) + 4)
        return
    begun = time.monotonic()
    try:
        spmdx.runtime.recover()
    except spmdx.CommError as error:
        said = str(error)
    for word in ("recovers.py:", "in step 1.", "process 1 (pid", "call recover()"):
        assert word in said, said
    assert time.monotonic() - begun < 30


globals()[sys.argv[1]]()
print("well", flush=True)
