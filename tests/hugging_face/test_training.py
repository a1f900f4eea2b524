# SPDX-License-Identifier: Apache-2.0
"""Beyond a plain step: dropout, padding, AdamW, bf16 and checkpointing of unmodified models."""

import pytest
import torch
from families import FAMILIES, padded
from hardware import ON_GPU
from steps import PLANS, Place, assert_same, reference, train

ALONE = Place("batch", (1,))
# A plan for each family, so that each plan meets several of them.
DEALT = {name: Place(PLANS[i % 3]) for i, name in enumerate(FAMILIES)}
NEXT = {name: Place(PLANS[(i + 1) % 3]) for i, name in enumerate(FAMILIES)}
DROPPING = [name for name, family in FAMILIES.items() if family.dropout]
DECODERS = ("gpt2", "llama", "mixtral")


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_draws_the_same_on_every_mesh(name):
    alone = train(name, ALONE, dropout=0.2)
    assert_same(train(name, DEALT[name], dropout=0.2), alone, FAMILIES[name].relative)
    assert abs(alone.loss - reference(name).loss) > 1e-4, "dropout dropped nothing"


def checkpointed(model):
    model.gradient_checkpointing_enable()


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "resnet"])
def test_checkpointing_changes_nothing(name):
    step = train(name, DEALT[name], prepare=checkpointed)
    assert_same(step, reference(name), FAMILIES[name].relative)


@pytest.mark.parametrize("name", ["gpt2", "bert", "whisper"])
def test_checkpointing_draws_its_dropout_again(name):
    alone = train(name, ALONE, dropout=0.2)
    step = train(name, DEALT[name], dropout=0.2, prepare=checkpointed)
    assert_same(step, alone, FAMILIES[name].relative)


def adamw(parameters):
    # eps: a gradient that is rounding and nothing else must not become a step of full length.
    return torch.optim.AdamW(parameters, lr=1e-2, eps=1e-2)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_of_adamw_gives_plain_pytorchs_parameters(name):
    step = train(name, NEXT[name], optimizer=adamw)
    want = reference(name, optimizer=adamw)
    assert_same(step, want, FAMILIES[name].relative, parameters=True)


@pytest.mark.parametrize("name", DECODERS)
def test_padded_batches_equal_plain_pytorch(name):
    for place in (DEALT[name], NEXT[name]):
        step = train(name, place, batch=padded)
        assert_same(step, reference(name, batch=padded), FAMILIES[name].relative)


def distance(got, want):
    """Of all gradients together, relative to their length."""
    pairs = [(got.gradients[name], gradient) for name, gradient in want.gradients.items()]
    apart = sum((a - b).double().square().sum() for a, b in pairs)
    return (apart / sum(b.double().square().sum() for _, b in pairs)).sqrt().item()


@pytest.mark.parametrize("name", FAMILIES)
def test_autocast_to_bf16_rounds_no_more_than_eager_does(name):
    step, alone = train(name, DEALT[name], amp=True), train(name, ALONE, amp=True)
    eager, exact = reference(name, amp=True), reference(name)
    assert step.loss.dtype == torch.float32
    assert abs(step.loss - eager.loss) < 2**-8 * abs(eager.loss)
    rounding = distance(eager, exact)
    assert 1e-3 < rounding < 0.2
    assert distance(step, exact) < 2 * rounding
    assert distance(step, alone) < (3 if ON_GPU else 2) * rounding


BF16 = torch.bfloat16


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_in_bf16_rounds_no_more_than_eager_does(name):
    """Against the same weights in more digits: sums of parts are as exact as eager's sums."""
    step, eager = train(name, DEALT[name], dtype=BF16), reference(name, dtype=BF16)
    exact = reference(name, rounded=BF16)
    assert step.loss.dtype == eager.loss.dtype and step.loss.isfinite()
    one_rounding = torch.finfo(BF16).eps
    assert abs(step.loss - eager.loss) <= 2 * one_rounding * abs(eager.loss)
    assert step.gradients.keys() == eager.gradients.keys()
    for key, wanted in exact.gradients.items():
        mine, its = step.gradients[key].double(), eager.gradients[key].double()
        allowed = 2 * (its - wanted).norm() + one_rounding * wanted.norm()
        assert step.gradients[key].dtype == BF16
        assert (mine - wanted).norm() <= allowed, f"the gradient of {key}"
