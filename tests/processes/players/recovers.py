# SPDX-License-Identifier: Apache-2.0
"""Processes that go on after an error; what one of them had marked by then holds for none of them.

    recovers.py KIND

Each kind ends with "well", printed by every process, or fails.
"""

import os
import sys
import time
import warnings
from functools import partial

import spmdx
import torch

HERE = spmdx.runtime.process_index()
COUNT = spmdx.runtime.global_runtime_device_count()
LAST = spmdx.runtime.process_count() - 1
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))
FAILS = False  # here, in the op below


@torch.library.custom_op("recovers::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    if FAILS:
        raise IndexError("it fails in one process")
    return x.clone()


pass_on.register_fake(torch.empty_like)
spmdx.register_rule("recovers::pass_on", "*->*")


def numbers() -> torch.Tensor:
    return spmdx.mark_sharding(torch.arange(4.0 * COUNT).to("spmdx"), MESH, ("data",))


def replica(value: float = 1.0) -> torch.Tensor:
    return spmdx.mark_sharding(torch.full((4,), value).to("spmdx"), MESH, (None,))


def refused(act, *kinds: type) -> str:
    """What ``act`` raises in this process; all of them have recovered then."""
    try:
        act()
    except (spmdx.CommError, *kinds) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        spmdx.runtime.recover()
        return str(error)
    raise AssertionError("nobody was told")


def used(x: torch.Tensor) -> None:
    (x * 10).cpu()


def works() -> None:
    """Steps of all kinds run, with the right numbers."""
    x = numbers()
    for turn in range(3):
        assert (x * turn).sum().item() == turn * sum(range(4 * COUNT))
    assert (replica(3.0) + 1).cpu().tolist() == [4.0] * 4


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
        assert "ValueError: a bad record (recovers.py:" in said, said
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


def half_done(act) -> str:
    """What ``recover`` says where some processes have changed tensors in a step, and others not."""
    global FAILS
    try:
        act()
    except (spmdx.CommError, IndexError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    FAILS = False
    try:
        spmdx.runtime.recover()
    except spmdx.CommError as error:
        return str(error)
    raise AssertionError("nobody was told")


def ahead() -> None:
    """A step that changed tensors in some processes and failed in others is told to all."""
    global FAILS
    x = numbers()
    kept = x.clone()
    spmdx.mark_step()
    FAILS = HERE == LAST

    def act() -> None:
        with torch.no_grad():
            x.add_(torch.ops.recovers.pass_on(kept))  # which fails before x is overwritten
        spmdx.mark_step()
        kept.sum().item()

    said = half_done(act)
    assert "ran to its end in process" in said and f"not in process {LAST}" in said, said
    assert "load the last checkpoint" in said and "recovers.py:" in said, said
    x.copy_(replica_of(kept))
    assert torch.equal(x.cpu(), kept.cpu())
    spmdx.runtime.recover()
    works()


def moved() -> None:
    """A tensor that only came to lie otherwise in some processes is no reason to stop."""
    global FAILS
    kept = numbers()
    spmdx.mark_step()
    x = spmdx.mark_sharding(torch.ones(4 * COUNT).to("spmdx"), MESH, ("data",))
    FAILS = HERE == LAST
    refused(lambda x=x: (torch.ops.recovers.pass_on(x) + 1).cpu(), IndexError)
    FAILS = False
    del x
    assert kept.sum().item() == sum(range(4 * COUNT))
    works()


def replica_of(x: torch.Tensor) -> torch.Tensor:
    return spmdx.mark_sharding(x.cpu().to("spmdx"), MESH, ("data",))


def overwrites() -> None:
    """So is a step that failed in one process after it had begun to overwrite what it was given."""
    global FAILS
    x = numbers()
    spmdx.mark_step()
    FAILS = HERE == LAST

    def act() -> None:
        with torch.no_grad():
            x.add_(1)
            x.copy_(torch.ops.recovers.pass_on(x))
        x.sum().item()

    said = half_done(act)
    assert "now differ" in said, said
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


def unseen() -> None:
    """A failure that the program has not heard of is a warning, not an error of a later step."""
    global FAILS
    x = numbers()
    spmdx.mark_step()
    FAILS = True
    kept = torch.ops.recovers.pass_on(x)
    spmdx.mark_step()
    while not spmdx._C.idle():
        time.sleep(0.01)
    FAILS = False
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        spmdx.runtime.recover()
    assert "it fails in one process" in str(told[0].message), told
    works()
    try:
        kept.cpu()
    except RuntimeError as error:
        print(error)
    else:
        raise AssertionError("a value that was never computed")
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
