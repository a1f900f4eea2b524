# SPDX-License-Identifier: Apache-2.0
"""Random programs whose nodes are placed over random devices equal plain PyTorch."""

import collections
import random

import pytest
import spmdx
from program_oracle import judge
from random_programs import Program, draft

A_TEST = 30


class Placed(Program):
    """The same program, on a mesh with one axis more."""

    def make_mesh(self):
        ids, shape = self.mesh
        names = tuple(self.axes) or tuple(f"axis{i}" for i in range(len(shape)))
        kinds = 8 // len(ids)
        return spmdx.Mesh(range(kinds * len(ids)), (kinds, *shape), ("kind", *names))


def set_random_kinds(draw, devices, each):
    """Speeds by which a step is spread; now and then the same, or a device that is never used."""
    rates = [draw.choice([1e6, 1e6, 2e6, 5e6, 1e9]) for _ in range(devices // each)]
    names = [f"cpu@{i // each}" for i in range(devices)] + ["cpu"] * (8 - devices)
    told = {f"cpu@{i}": spmdx.Hardware("slow", {"f32": r}, r) for i, r in enumerate(rates)}
    spmdx.runtime.set_devices(names, hardware=told)


@pytest.mark.parametrize("first", range(0, 240, A_TEST))
def test_placed_programs_equal_unsharded_ones(first):
    verdicts, spread = collections.Counter(), 0
    for seed in range(first, first + A_TEST):
        program = draft(seed)
        if len(program.mesh[0]) > 4:
            continue
        placed = Placed(**vars(program))
        set_random_kinds(
            random.Random(seed),
            8 // len(program.mesh[0]) * len(program.mesh[0]),
            len(program.mesh[0]),
        )
        spmdx.auto.place(placed.make_mesh(), "kind")
        verdict, said = judge(placed)
        verdicts[verdict] += 1
        report = spmdx.explain().placement
        spread += report is not None and len({s.coordinate for s in report.segments}) > 1
        if report is not None:
            assert report.least_ns <= min([report.step_ns, *report.alone_ns]), f"seed {seed}"
        assert verdict != "different", f"seed {seed}: {said}\n\n{program.text()}"
    assert verdicts["equal"] >= A_TEST // 4 and spread >= A_TEST // 8
