# SPDX-License-Identifier: Apache-2.0
"""Saves or loads a checkpoint in many processes: checkpoint.py WHAT FOLDER LAYOUT.

Every process looks at the shards of its own devices; nothing is gathered to be compared.
"""

import ctypes
import os
import pathlib
import sys
import warnings

import spmdx
import torch

HELPERS = pathlib.Path(__file__).parents[2] / "python" / "helpers"
sys.path.insert(0, str(HELPERS / "checkpoint"))

from checkpoints import bits, spec_of, values  # noqa: E402

SHAPES = {1: (1, 1), 2: (2, 1), 3: (3, 1), 4: (2, 2), 6: (3, 2), 8: (4, 2)}
COUNT = spmdx.runtime.global_runtime_device_count()


def mesh():
    return spmdx.Mesh(range(COUNT), SHAPES[COUNT], ("a", "b"))


def placed(tensors, layout):
    return {
        name: spmdx.mark_sharding(t.clone().to("spmdx"), mesh(), spec_of(layout, t))
        for name, t in tensors.items()
    }


def check(tensors, expected):
    for name, tensor in tensors.items():
        for shard in tensor.local_shards:
            assert bits(shard.data) == bits(expected[name][shard.indices]), (name, shard.indices)


class Run:
    def __init__(self, seed, layout):
        torch.manual_seed(seed)
        layers = torch.nn.Linear(12, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
        self.model = torch.nn.Sequential(*layers).double().to("spmdx")
        for parameter in list(self.model.parameters()):
            spmdx.mark_sharding(parameter, mesh(), spec_of(layout, parameter))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def steps(self, count):
        losses = []
        for _ in range(count):
            x = torch.randn(8, 12, dtype=torch.float64, device="spmdx")
            spmdx.mark_sharding(x, mesh(), ("a", None))
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def state(self):
        rng = spmdx.checkpoint.rng_state()
        return {"model": self.model, "optimizer": self.optimizer, "rng": rng}


def save(folder, layout):
    run = Run(0, layout)
    run.steps(2)
    tensors = placed(values(), layout)
    spmdx.checkpoint.save({"tensors": tensors, "run": run.state(), "step": 2}, folder / "c")
    saving = spmdx.checkpoint.async_save({"tensors": tensors, "step": 3}, folder / "later")
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.zero_()
    print("losses", *run.steps(3))
    saving.result()
    assert (folder / "later" / "spmdx.manifest.json").exists()


def load(folder, layout):
    run = Run(1, layout)
    for name, step in (("c", 2), ("later", 3)):
        tensors = placed({n: torch.zeros_like(t) for n, t in values().items()}, layout)
        state = {"tensors": tensors, "step": 0}
        if name == "c":
            state["run"] = run.state()
        spmdx.checkpoint.load(state, folder / name)
        check(tensors, values())
        assert state["step"] == step
    print("losses", *run.steps(3))


def plain(folder, layout):
    """torch.distributed.checkpoint's own calls, and safetensors."""
    import torch.distributed.checkpoint as dcp

    torch.distributed.init_process_group("gloo")
    tensors = placed(values(), layout)
    dcp.save({"t": tensors, "step": 5}, checkpoint_id=folder / "plain")
    zeros = placed({n: torch.zeros_like(t) for n, t in values().items()}, "dim 1")
    dcp.load({"t": zeros, "step": 0}, checkpoint_id=folder / "plain")
    check(zeros, values())
    files = {path.name for path in (folder / "plain").iterdir()}
    assert {f"__{p}_0.distcp" for p in range(torch.distributed.get_world_size())} <= files
    zeros = placed({n: torch.zeros_like(t) for n, t in values().items()}, "2-D")
    spmdx.checkpoint.load({"t": zeros, "step": 0}, folder / "plain")
    check(zeros, values())
    spmdx.checkpoint.save_safetensors(tensors, folder / "w", max_shard_size=400)
    zeros = placed({n: torch.zeros_like(t) for n, t in values().items()}, "dim 0")
    spmdx.checkpoint.load_safetensors(zeros, folder / "w")
    check(zeros, values())
    print("equal")


def refused(folder, layout):
    """Damage that only the last process reads is told to all, and changes nothing."""
    w = torch.arange(2.0 * COUNT * COUNT).reshape(COUNT, 2 * COUNT)
    spmdx.checkpoint.save({"w": placed({"w": w}, "dim 0")["w"]}, folder / "c")
    last = folder / "c" / f"__{spmdx.runtime.process_count() - 1}_0.distcp"
    if spmdx.runtime.process_index() == 0:
        row = w[-1].numpy().tobytes()
        last.write_bytes(last.read_bytes().replace(row, bytes(len(row))))
    spmdx._world.processes.barrier()
    target = placed({"w": torch.ones_like(w)}, "dim 0")
    try:
        spmdx.checkpoint.load(target, folder / "c")
    except spmdx.checkpoint.CheckpointError as error:
        assert "w is damaged in" in str(error) and last.name in str(error), error
        check(target, {"w": torch.ones_like(w)})
        print("refused")


def dies(folder, layout):
    """One process dies while it writes: the others say so, and what was there stays."""
    tensors = placed(values(), layout)
    spmdx.checkpoint.save({"t": tensors}, folder / "c")
    if spmdx.runtime.process_index() == 1:
        torch.save = lambda *_: os._exit(9)
    try:
        spmdx.checkpoint.save({"t": tensors}, folder / "c")
    except spmdx.checkpoint.CheckpointError as error:
        print(error)
    sys.exit(3)


def grows(folder, layout):
    """Bytes that the resident set grows by: shards stay in their process."""

    def status(key):
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024

    def made(rows):
        x = torch.full((rows, 2048), 7.0, device="spmdx")
        spmdx.mark_sharding(x, mesh(), spec_of(layout, x))
        spmdx.sync(wait=True)
        return {"x": x}

    ctypes.CDLL(None).mallopt(-3, 65536)  # M_MMAP_THRESHOLD: what is freed is given back
    small = made(64)
    spmdx.checkpoint.save(small, folder / "small")
    spmdx.checkpoint.load(small, folder / "small")
    state = made(8192)
    for what in ("save", "load"):
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        getattr(spmdx.checkpoint, what)(state, folder / "big")
        print(what, status("VmHWM") - before)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, folder, layout = sys.argv[1:]
    globals()[what](pathlib.Path(folder), layout)
