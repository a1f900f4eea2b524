# SPDX-License-Identifier: Apache-2.0
"""benchmarks/strategies.py: what it samples, correlates and trains."""

import sys
from itertools import pairwise

import pytest
import searched
import spmdx
import torch


def kinds(candidates):
    return {(c.strategy.family, c.strategy.zero) for c in candidates}


def test_a_sample_has_the_chosen_one_and_all_families(benchmark):
    program = searched.program("gpt", "spmdx")
    plan = spmdx.auto.search(program.step, program.model, program.optimizer, program.batch)
    taken = benchmark.sample(plan.candidates, 24)
    assert 24 <= len(taken) + 1 < len(plan.candidates)
    assert plan.candidates[0] in taken
    assert all(a.step_ns <= b.step_ns for a, b in pairwise(taken))
    assert kinds(taken) == kinds(plan.candidates)
    all_of_them = benchmark.sample(plan.candidates, 10**6)
    short = [c for c in plan.candidates if c.step_ns <= 10 * plan.candidates[0].step_ns]
    assert all(c in all_of_them for c in short)


def test_correlations_are_those_of_ranks(benchmark):
    report = sys.modules["strategy_report"]
    assert report.spearman([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert report.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # By the formula 1 - 6 sum d^2 / (n (n^2 - 1)), where no ranks are equal.
    assert report.spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / 120)
    assert list(report.ranks([3.0, 1.0, 3.0])) == [1.5, 0, 1.5]


def test_a_regret_is_by_what_was_best_in_other_rounds(benchmark):
    row = sys.modules["strategy_report"].Row
    chosen = row("a", "data", True, True, measured_ms=[10, 11, 12])
    lucky = row("b", "data", False, True, measured_ms=[5, 20, 20])
    regret = sys.modules["strategy_report"].regret_of_other_rounds
    assert regret([chosen, lucky]) == 1  # by the others, it was never the best one
    better = row("c", "data", False, True, measured_ms=[8, 10, 10])
    assert regret([chosen, lucky, better]) == pytest.approx(12 / 10)
    once = row("a", "data", True, True, measured_ms=[10])
    assert regret([once, row("b", "data", False, True, measured_ms=[8])]) == 1.25


@pytest.mark.parametrize("name", ["gpt", "llama", "mlp", "experts", "resnet", "recommender"])
def test_models_train_as_plain_pytorch_does(benchmark, name):
    models = sys.modules["strategy_models"]
    plain, ours = models.Program(name, "cpu"), models.Program(name)
    assert name in models.KINDS
    batches = spmdx.auto.Strategy(data=2).mark_batch(
        ours.batch, spmdx.Mesh([0, 1], (2,), ("data",))
    )
    for _ in range(2):
        expected, found = plain.step([plain.batch]), ours.step([batches])
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)
