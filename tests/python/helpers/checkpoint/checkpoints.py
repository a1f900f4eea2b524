# SPDX-License-Identifier: Apache-2.0
"""What the tests of checkpoints share: states of many kinds, layouts, comparison bit by bit."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import spmdx
import torch
from spmdx._checkpoint.format import boxes as checkpoint_boxes

# Six ways to cut every tensor; {} stands for as many dims as follow.
LAYOUTS = {
    "replicated": (),
    "dim 0": ("a",),
    "dim 1": (None, "a"),
    "both axes on one dim": (("a", "b"),),
    "2-D": ("a", "b"),
    "minor first, uneven": (None, ("b", "a")),
}
MESHES = {1: (1, 1), 2: (2, 1), 3: (3, 1), 4: (2, 2), 8: (4, 2)}


def mesh_of(devices):
    return spmdx.Mesh(range(devices), MESHES[devices], ("a", "b"))


def spec_of(layout, tensor):
    spec = LAYOUTS[layout][: tensor.dim()]
    return spec + (None,) * (tensor.dim() - len(spec))


def values(seed=0):
    """Tensors of sizes that divide and do not, of many dtypes, and some without elements."""
    draw = torch.Generator().manual_seed(seed)
    return {
        "even": torch.randn(16, 8, generator=draw),
        "uneven": torch.randn(7, 5, generator=draw),
        "three": torch.randn(3, 9, 2, generator=draw).bfloat16(),
        "whole": torch.randint(-9, 9, (10,), generator=draw),
        "flags": torch.rand(5, 6, generator=draw) > 0.5,
        "pairs": torch.randn(4, 4, generator=draw).to(torch.complex64),
        "scalar": torch.randn((), generator=draw, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "special": torch.tensor([-0.0, float("nan"), float("inf"), 1e-45]),
    }


def placed(tensors, layout, devices, like=False):
    """The tensors on the mesh; with ``like`` zeros instead of their elements."""
    mesh = mesh_of(devices)
    return {
        name: spmdx.mark_sharding(
            (torch.zeros_like(t) if like else t).to("spmdx"), mesh, spec_of(layout, t)
        )
        for name, t in tensors.items()
    }


def zeros(tensors):
    return {name: torch.zeros_like(t) for name, t in tensors.items()}


def bits(tensor):
    tensor = tensor.detach().cpu().contiguous()
    return tuple(tensor.shape), tensor.dtype, tensor.reshape(-1).view(torch.uint8).tolist()


def assert_same_bits(found, expected):
    assert list(found) == list(expected)
    for name in expected:
        assert bits(found[name]) == bits(expected[name]), name


def run_python(code, *arguments, devices=8, check=True, **environment):
    """The result of ``code`` in a process of its own."""
    environment = {**os.environ, "SPMDX_NUM_DEVICES": str(devices), **environment}
    here = Path(__file__).parent
    folders = [here, here.parent, here.parents[1] / "checkpoint"]  # its tests, and what they use
    environment["PYTHONPATH"] = os.pathsep.join(
        [*map(str, folders), environment.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore:torch.distributed", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def in_threads(act, items):
    """``act`` of each item, in threads of their own, which all end."""
    threads = [threading.Thread(target=act, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def held_by(each, here):
    """``checkpoint_boxes._held`` of a thread that plays process ``here()`` of ``each`` devices."""
    held = checkpoint_boxes._held

    def own(tensor):
        data, sharding = held(tensor)
        if sharding is None:
            return data, None
        devices = sharding.mesh.device_ids.tolist()
        pairs = zip(data, devices, strict=True)
        return [d for d, device in pairs if device // each == here()], sharding

    return own


class Meeting:
    """Where threads exchange values as processes do."""

    def __init__(self, count):
        self._told, self.met = [None] * count, threading.Barrier(count, timeout=60)

    def exchange(self, process, value):
        self._told[process] = json.loads(json.dumps(value))
        self.met.wait()
        told = list(self._told)
        self.met.wait()
        return told
