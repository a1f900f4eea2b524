# SPDX-License-Identifier: Apache-2.0
"""What crosses the wire in a step of an unmodified model: gradients, parameters, and no more."""

import pytest
from families import FAMILIES, LAYERS, LENGTH, VOCAB, WIDTH
from steps import Place, train

ROWS, N = 64, 4  # many more tokens than words, so gradients are added up before they move
SCALARS = 512
RESNET_CHANNELS = 3 * 8 + 3 * 16
EXPERTS = "mixtral"  # sorts the tokens of all devices by expert, so tokens move as well


def received(tensors, times):
    """Bytes a device receives if each tensor crosses the wire `times` times: `times` · (n−1)/n."""
    return times * (N - 1) / N * sum(t.numel() * t.element_size() for t in tensors)


def statistics(name):
    """Batch norm sums up four numbers a channel: mean and variance, and their two gradients."""
    return 2 * (N - 1) / N * 4 * RESNET_CHANNELS * 8 if name == "resnet" else 0


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != EXPERTS])
def test_a_cut_batch_moves_only_gradients(name):
    step = train(name, Place("batch", (N,)), rows=ROWS)
    gradients = received(step.gradients.values(), 2) + statistics(name)
    assert 0.95 * gradients <= step.counters["wire_bytes"] <= gradients + SCALARS


def test_a_cut_batch_shares_out_the_products_of_experts():
    """Tokens of all devices are sorted together, so these products do not follow the batch."""
    report = train(EXPERTS, Place("batch", (N,)), rows=ROWS).report
    assert report.flops * N <= 1.05 * report.whole_flops


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != EXPERTS])
def test_fully_sharded_gathers_twice_and_scatters_once(name):
    step = train(name, Place("fully sharded", (N,)), rows=ROWS)
    tables = [p for p in step.parameters.values() if p.shape[0] == VOCAB]  # read at both ends
    most = received(step.gradients.values(), 3) + received(tables, 1) + statistics(name)
    assert step.counters["wire_bytes"] <= most + SCALARS


@pytest.mark.parametrize("name", ["llama", "bert"])  # norms before, and after the residual
def test_tensor_parallel_reduces_four_activations_a_layer(name):
    step = train(name, Place("tensor parallel", (N,)), rows=ROWS)
    activation = 2 * (N - 1) / N * ROWS * LENGTH * WIDTH * 4
    reduced = [c for c in step.report.collectives if c.kind == "all_reduce"]
    # The table of words is one more.
    assert sum(c.count for c in reduced if c.bytes >= activation) <= 4 * LAYERS + 1
