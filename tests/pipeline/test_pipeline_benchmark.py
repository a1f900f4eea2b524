# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/pipelines.py compares: stages that make up the model, and ideals."""

import itertools
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "pipelines"))
from pipeline_programs import CONFIG, PROGRAMS, Stage, build_model, first_blocks  # noqa: E402


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 6])
def test_stages_make_up_the_model(stages):
    begins = first_blocks(stages)
    assert begins[0] == 0 and begins[-1] == CONFIG.layers
    assert all(begin < end for begin, end in itertools.pairwise(begins))
    model = build_model()
    x = torch.arange(32).reshape(2, 16) % CONFIG.vocab
    y = x
    with torch.no_grad():
        for stage in range(stages):
            y = Stage(model, stage, stages)(y)
        assert torch.equal(y, model(x))


def test_ideals_are_those_of_the_bubble():
    ideals = {name: made.ideal for name, made in PROGRAMS.items()}
    assert ideals["single"](2, 4) == 1
    for name in ("1F1B", "GPipe"):
        assert ideals[name](2, 4) == pytest.approx(8 / 5)
        assert ideals[name](2, 8) == pytest.approx(16 / 9)
        assert ideals[name](4, 4) == pytest.approx(24 / 12)  # two of four stages have two blocks
    assert ideals["interleaved"](2, 4) == pytest.approx(8 / 4.5)
