# SPDX-License-Identifier: Apache-2.0
"""Processes that go on after a step that ran in some of them and failed in others.

    recovers_half_done.py KIND

Each kind ends with "well", printed by every process, or fails.
"""

import sys
import time
import warnings

import spmdx
import torch
from recovering import COUNT, HERE, LAST, MESH, numbers, refused, works

FAILS = False  # here, in the op below


@torch.library.custom_op("recovers::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    if FAILS:
        raise IndexError("it fails in one process")
    return x.clone()


pass_on.register_fake(torch.empty_like)
spmdx.register_rule("recovers::pass_on", "*->*")


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
    assert "load the last checkpoint" in said and "recovers_half_done.py:" in said, said
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


globals()[sys.argv[1]]()
print("well", flush=True)
