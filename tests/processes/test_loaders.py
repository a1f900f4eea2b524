# SPDX-License-Identifier: Apache-2.0
"""What many processes load is what one process loads, whole, in parts, and from streams."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from launch import Running, run
from load import WAYS, loader, stream

ROOT = pathlib.Path(__file__).parents[2]
CASES = [  # processes, devices of each, mesh, spec, parts
    (2, 1, (2,), ("a",), [0, 1]),
    (2, 4, (4, 2), ("a",), [0, 1]),
    (3, 1, (3,), ("a",), [0, 1, 2]),
    (4, 1, (2, 2), ("a",), [0, 0, 1, 1]),
    (2, 2, (4,), (None,), [0, 0]),
]


def expected(way, parts):
    """[(x, y)] of two epochs in one process: parts one after another."""
    count = max(parts) + 1
    if way == "whole":
        plain = loader(way, 1, 0)
        return [batch for _ in range(2) for batch in plain]
    loaders = [loader(way, count, part) for part in range(count)]
    batches = []
    for epoch in range(2):
        for each in loaders:
            if way == "parts":
                each.sampler.set_epoch(epoch)
        lists = [list(each) for each in loaders]
        for i in range(max(map(len, lists))):
            present = [some[i] for some in lists if i < len(some)]
            batches.append(tuple(torch.cat(tensors) for tensors in zip(*present, strict=True)))
    return batches


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}x{case[1]} {case[2]} {case[3]}")
def test_batches_are_those_of_one_process(case):
    processes, devices, shape, spec, parts = case
    said = run("load.py", processes, devices, repr(shape), repr(spec))
    for process, line in enumerate(said):
        count, part, seen = json.loads(line)
        assert (count, part) == (max(parts) + 1, parts[process])
        for way in WAYS:
            batches = expected(way, parts)
            assert seen[way] == [[x.tolist(), y.tolist(), 4 * x.sum().item()] for x, y in batches]


def test_streams_differ_in_length():
    assert len(stream(1)) == len(stream(0)) + 1


def test_whole_batches_that_differ_are_refused_in_every_process():
    with Running("load.py", 2, 1, "(2,)", "('a',)", "differing") as running:
        for how in running.end():
            assert how.status == 1
            assert "differs between processes 0 and 1, which hold the same rows" in how.err


LATER = """
import sys, torch, spmdx
minibatch, same_shapes = (word == "True" for word in sys.argv[1:])
here = spmdx.runtime.process_index()
mesh = spmdx.Mesh(range(2), (1, 2), ("data", "model"))
batches = [torch.full((8, 1), float(i * (1 + here))) for i in range(4)]
spec = spmdx.data.ShardingSpec(mesh, ("data",), minibatch=minibatch)
got = []
try:
    for x in spmdx.data.device_loader(batches, input_sharding=spec, same_shapes=same_shapes):
        got.append(x.sum().item())
except (spmdx.ShardingError, spmdx.CommError) as error:
    print(len(got), error)
"""


@pytest.mark.parametrize(
    "minibatch, same_shapes, said",
    [
        (False, False, "processes feed different values to this step"),
        (True, False, "differs between processes 0 and 1, which hold the same rows"),
        (True, True, "differs between processes 0 and 1, which hold the same rows"),
    ],
)
def test_a_later_batch_that_differs_is_refused(minibatch, same_shapes, said):
    for line in run(LATER, 2, 1, str(minibatch), str(same_shapes)):
        assert line.startswith("1 program.py:") and said in line, line


def test_the_example_runs_under_torchrun_and_prints_once(tmp_path):
    where = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    arguments = ["--tiny", "--steps", "12", "--mode", "dp", "--dropout", "0"]
    done = subprocess.run(
        [*command, str(ROOT / "examples" / "train_gpt.py"), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": where, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = re.findall(r"loss (\S+) -> (\S+)", done.stdout)
    assert len(losses) == 1 and done.stdout.count("Written by the model") == 1
    assert float(losses[0][1]) < float(losses[0][0])
