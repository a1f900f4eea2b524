# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a run, on the host or as checkpoints, and comparisons of what runs ended with."""

import copy
import hashlib
import math
import pathlib

import spmdx
import torch
from fault_strikes import RANK


def on_host(tree):
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().clone()
    if isinstance(tree, dict):
        return {key: on_host(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [on_host(value) for value in tree]
    return copy.deepcopy(tree)


class Kept:
    """The snapshots of a run. Which one is the last that all processes have, files tell."""

    def __init__(self, play, folder: pathlib.Path | None):
        self._play, self._folder = play, folder
        self._states: dict[int, dict] = {}

    def _on_disk(self) -> bool:
        return self._play.here and self._play.program.keeps == "checkpoint"

    def state(self) -> dict:
        """What a checkpoint holds."""
        play = self._play
        named = {f"optimizer {n}": o for n, o in enumerate(play.optimizers)}
        rng = spmdx.checkpoint.rng_state()
        return {"model": play.model, "rest": play.rest, "rng": rng, **named}

    def keep(self, step: int) -> None:
        play = self._play
        if self._on_disk():
            spmdx.checkpoint.save(self.state(), self._folder / f"step {step}")
            return
        optimizers = [optimizer.state_dict() for optimizer in play.optimizers]
        self._states[step] = {
            **on_host({"model": play.model.state_dict(), "rest": play.rest, "of": optimizers}),
            "random": play.generators(),
        }
        if self._folder:
            (self._folder / f"{step} of {RANK}").touch()

    def last(self) -> int:
        """REQUIRES: every process has stopped to keep any."""
        if self._on_disk():
            found = self._folder.glob("step */spmdx.manifest.json")
            return max(int(path.parent.name.split()[1]) for path in found)
        steps = {int(path.name.split()[0]) for path in self._folder.glob("* of *")}
        count = self._play.program.processes
        return max(s for s in steps if len(list(self._folder.glob(f"{s} of *"))) == count)

    def fill(self, step: int) -> None:
        """The run's new tensors."""
        play = self._play
        if self._on_disk():
            spmdx.checkpoint.load(self.state(), self._folder / f"step {step}")
            return
        kept = self._states[step]
        play.model.load_state_dict(kept["model"])
        for optimizer, state in zip(play.optimizers, kept["of"], strict=True):
            optimizer.load_state_dict(copy.deepcopy(state))
        with torch.no_grad():
            for name, tensor in play.rest.items():
                tensor.copy_(kept["rest"][name])
        play.set_generators(kept["random"])


def digest(values: dict[str, torch.Tensor | str]) -> str:
    together = hashlib.sha256()
    for name in sorted(values):
        value = values[name]
        data = value.encode() if isinstance(value, str) else value.contiguous().numpy().tobytes()
        together.update(name.encode() + data)
    return together.hexdigest()[:16]


def largest_difference(found: dict, expected: dict) -> tuple[float, str]:
    """Relative to the largest element of a tensor or 1; of which name. Names of both count."""
    worst = (0.0, "")
    for name in sorted(found.keys() | expected.keys()):
        a, b = found.get(name), expected.get(name)
        if a is None or b is None:
            return math.inf, f"{name} is missing"
        if isinstance(a, str) or isinstance(b, str):
            error = 0.0 if a == b else math.inf
        elif a.shape != b.shape or a.dtype != b.dtype:
            error = math.inf
        elif not a.numel():
            continue
        else:
            error = ((a - b).abs().max() / b.abs().max().clamp_min(1)).double().item()
            error = math.inf if math.isnan(error) else error
        worst = max(worst, (error, name))
    return worst
