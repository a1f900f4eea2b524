# SPDX-License-Identifier: Apache-2.0
"""Processes that save or load what is not the same: checkpoint_differ.py WHAT FOLDER.

Each prints the error that it gets. What is told must leave the state and the files as they were.
"""

import os
import pathlib
import sys
import warnings

import spmdx
import torch

HERE = spmdx.runtime.process_index()
COUNT = spmdx.runtime.process_count()
LAST = HERE == COUNT - 1
VALUES = {"t": torch.arange(1.0, 17.0), "x": torch.ones(4), "log": torch.tensor([5.0, 6.0])}


def mesh():
    devices = spmdx.runtime.global_runtime_device_count()
    return spmdx.Mesh(range(devices), (devices // 2, 2), ("data", "model"))


def made(fill=None):
    """One tensor in pieces that several processes hold, one held by all, one on the CPU."""
    state = {n: v.clone() if fill is None else torch.full_like(v, fill) for n, v in VALUES.items()}
    state["t"] = spmdx.mark_sharding(state["t"].to("spmdx"), mesh(), ("model",))
    state["x"] = spmdx.mark_sharding(state["x"].to("spmdx"), mesh(), (None,))
    spmdx.mark_step()
    return state | {"step": 3 if fill is None else 0}


def turned(state):
    return dict(reversed(state.items())) if LAST else state


def without(state, *names):
    return {name: value for name, value in state.items() if name not in names or not LAST}


def with_spec(state):
    if LAST:
        state["t"] = spmdx.mark_sharding(state["t"], mesh(), (None,))
    return state


def with_shape(state):
    return state | ({"log": torch.zeros(3)} if LAST else {})


def with_dtype(state):
    return state | ({"log": torch.zeros(2).double()} if LAST else {})


def with_kind(state):
    return state | ({"step": torch.tensor(3)} if LAST else {})


CHANGES = {
    "names": lambda state: without(state, "log"),
    "more": lambda state: state | ({"extra": 1, "more": 2} if LAST else {}),
    "spec": with_spec,
    "shape": with_shape,
    "dtype": with_dtype,
    "kind": with_kind,
}


def told(work):
    try:
        work()
    except spmdx.checkpoint.CheckpointError as error:
        print("told:", error, flush=True)
    else:
        raise AssertionError("nobody was told")


def check(state, expected, step):
    for name, value in expected.items():
        assert torch.equal(state[name].cpu(), value), (name, state[name].cpu())
    assert state["step"] == step


def order(folder):
    """No difference: the same tensors in dicts of another order, and values of each process."""
    for save in (spmdx.checkpoint.save, lambda *a: spmdx.checkpoint.async_save(*a).result()):
        save(turned(made() | {"log": VALUES["log"] + HERE, "step": 3 + HERE}), folder / "c")
        target = turned(made(-7.0))
        spmdx.checkpoint.load(target, folder / "c")
        check(target, VALUES, 3)
    model = torch.nn.Linear(4, 4).to("spmdx")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objects = turned({"model": model, "optimizer": optimizer})
    spmdx.checkpoint.save(objects, folder / "objects")
    spmdx.checkpoint.load(objects, folder / "objects")
    print(model.weight.sum().item())


def state_at(folder, change):
    spmdx.checkpoint.save(made(), folder / "c")
    target = made(-7.0)
    before = {name: target[name].cpu().clone() for name in ("t", "x")}
    changed = CHANGES[change](made())
    told(lambda: spmdx.checkpoint.save(changed, folder / "c"))
    told(lambda: spmdx.checkpoint.async_save(changed, folder / "c"))
    changed = CHANGES[change](target)
    told(lambda: spmdx.checkpoint.load(changed, folder / "c", strict=False))
    if change == "spec":  # who reads it now is told that the programs differ
        return
    check(target, before, 0)
    same = made(-7.0)
    spmdx.checkpoint.load(same, folder / "c")
    check(same, VALUES, 3)


def paths(folder):
    for step in range(COUNT):
        spmdx.checkpoint.save(made(), folder / str(step))
    target = made(-7.0)
    told(lambda: spmdx.checkpoint.load(target, folder / str(HERE)))
    check(target, {name: torch.full_like(v, -7.0) for name, v in VALUES.items()}, 0)
    told(lambda: spmdx.checkpoint.save(made(), folder / f"new{HERE}"))
    told(lambda: (spmdx.checkpoint.load if LAST else spmdx.checkpoint.save)(made(), folder / "0"))
    told(lambda: spmdx.checkpoint.load(target, folder / "0", strict=not LAST))


def mounts(folder):
    """One path that leads to another place in every process."""
    for step in range(COUNT):
        spmdx.checkpoint.save(made() | {"step": step}, folder / str(step) / "c")
    os.chdir(folder / str(HERE))
    path = pathlib.Path("/proc/self/cwd/c")
    target = made(-7.0)
    told(lambda: spmdx.checkpoint.load(target, path))
    check(target, {name: torch.full_like(v, -7.0) for name, v in VALUES.items()}, 0)
    told(lambda: spmdx.checkpoint.save(made(), path))
    saving = spmdx.checkpoint.async_save(made(), path)
    told(saving.result)


def safetensors(folder):
    """Weights: the order of a dict is free, other paths, names and files are told."""
    save, load = spmdx.checkpoint.save_safetensors, spmdx.checkpoint.load_safetensors

    def weights(fill=None):
        return turned({name: t for name, t in made(fill).items() if name != "step"})

    for step in range(COUNT):
        save(weights(), folder / str(step) / "w", max_shard_size=50)
    target = weights(-7.0)
    load(target, folder / "0" / "w")
    assert all(torch.equal(target[name].cpu(), VALUES[name]) for name in VALUES)
    target = weights(-7.0)
    told(lambda: load(target, folder / str(HERE) / "w"))
    told(lambda: load(without(target, "x"), folder / "0" / "w", strict=False))
    told(lambda: save(without(target, "x"), folder / "0" / "w"))
    told(lambda: save(target, folder / f"new{HERE}"))
    save({"log": torch.ones(2)}, folder / "0" / "w")
    spmdx._world.processes.barrier()
    os.chdir(folder / str(HERE))
    told(lambda: load(target, "/proc/self/cwd/w", strict=False))
    assert all((target[name].cpu() == -7).all() for name in VALUES)


def optimizer(folder):
    """One that made no step gets the state of one that did, whatever lies in freed memory."""

    def run():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)).to("spmdx")
        spmdx.mark_sharding(model[1].weight, mesh(), (None, "model"))
        return model, torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)

    def step(model, optimizer):
        model(torch.ones(2, 8).to("spmdx")).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return [p.detach().cpu().clone() for p in model.parameters()]

    model, optimizer = run()
    step(model, optimizer)
    spmdx.checkpoint.save({"m": model, "o": optimizer}, folder / "c")
    expected = step(model, optimizer)
    model, optimizer = run()
    garbage = [torch.full((n,), HERE + i / 7.0) for i in range(2000) for n in (1, 8)]
    del garbage
    spmdx.checkpoint.load({"m": model, "o": optimizer}, folder / "c")
    found = step(model, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    print("equal")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if what in CHANGES:
        state_at(folder, what)
    else:
        globals()[what](folder)
