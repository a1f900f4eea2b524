# SPDX-License-Identifier: Apache-2.0
"""Saves to a file system with no room left: checkpoint_full.py FOLDER, where few MiB fit.

Run as root of a namespace of its own, it mounts one at FOLDER; else FOLDER is one.
"""

import contextlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import spmdx
import torch
from spmdx.checkpoint import CheckpointError

FOLDER = Path(sys.argv[1])
ROOM = 6 << 20


def state(fill, rows=256):
    mesh = spmdx.Mesh(range(4), (4,), ("a",))
    x = torch.full((rows, 1024), float(fill)).to("spmdx")
    return {"x": spmdx.mark_sharding(x, mesh, ("a", None)), "step": fill}


def found():
    target = state(0)
    spmdx.checkpoint.load(target, FOLDER / "c")
    assert target["x"].cpu().unique().tolist() == [float(target["step"])]
    return target["step"]


def room_for(size):
    """Fill the file system until ``size`` bytes are free."""
    stat = os.statvfs(FOLDER)
    filler = FOLDER / "filler"
    length = stat.f_bavail * stat.f_frsize - size
    with open(filler, "wb") as file, contextlib.suppress(OSError):
        file.write(bytes(max(0, length)))
    return filler


def attempt(save, free):
    """What a save raises when ``free`` bytes are left; nothing of it may stay."""
    filler = room_for(free)
    try:
        save(state(2), FOLDER / "c")
    except CheckpointError as error:
        assert isinstance(error.__cause__, OSError), repr(error.__cause__)
        assert error.__cause__.errno == 28 and "No space left on device" in str(error), error
    else:
        raise AssertionError(f"it was saved to {free} bytes")
    assert sorted(os.listdir(FOLDER)) == ["c", "filler"], os.listdir(FOLDER)
    filler.unlink()
    assert found() == 1


def in_background(state, path):
    spmdx.checkpoint.async_save(state, path).result()


def main():
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", FOLDER], check=True)
    warnings.simplefilter("ignore")
    spmdx.checkpoint.save(state(1), FOLDER / "c")
    count = 0
    for save in (spmdx.checkpoint.save, in_background):
        # no page; not the data of one chunk, nor of all; the data, and no more than that
        for free in (0, 4096, 100_000, 300_000, 900_000, (1 << 20) + 8192):
            attempt(save, free)
            count += 1
    weights = {"x": torch.ones(1000, 1000)}
    spmdx.checkpoint.save_safetensors(weights, FOLDER / "w", max_shard_size=1000)
    for free in (0, 100_000):
        filler = room_for(free)
        try:
            spmdx.checkpoint.save_safetensors({"x": weights["x"] * 2}, FOLDER / "w")
        except CheckpointError as error:
            assert "No space left on device" in str(error)
            count += 1
        filler.unlink()
        target = {"x": torch.zeros(1000, 1000)}
        spmdx.checkpoint.load_safetensors(target, FOLDER / "w")
        assert target["x"].unique().tolist() == [1.0] and len(os.listdir(FOLDER / "w")) == 1
    spmdx.checkpoint.save(state(3), FOLDER / "c")
    assert found() == 3 and sorted(os.listdir(FOLDER)) == ["c", "w"]
    print("told", count)


if __name__ == "__main__":
    main()
