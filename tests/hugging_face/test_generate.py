# SPDX-License-Identifier: Apache-2.0
"""`generate` of unmodified Hugging Face models, with its cache: the tokens of plain PyTorch."""

import functools

import pytest
import spmdx
import torch
from families import FAMILIES, LENGTH
from steps import PLANS, Place

ALONE = Place("batch", (1,))
SAMPLED = {"do_sample": True, "temperature": 1.3, "top_k": 20, "top_p": 0.9}


def left_padded(batch):
    """The rows of a decoder's batch begin at different places."""
    starts = torch.arange(len(batch["input_ids"])) % 3
    return {**batch, "attention_mask": (torch.arange(LENGTH) >= starts[:, None]).long()}


def generate(name, place=None, **how):
    family, device = FAMILIES[name], "cpu" if place is None else "spmdx"
    torch.manual_seed(0)
    model = family.build().to(family.dtype).eval()
    model.config.output_router_logits = False
    batch = {k: t for k, t in family.batch(4).items() if k != "labels"}
    if not model.config.is_encoder_decoder:
        batch = left_padded(batch)
    floats = {k: family.dtype if t.is_floating_point() else None for k, t in batch.items()}
    batch = {k: t.to(device, floats[k]) for k, t in batch.items()}
    model = model.to(device)
    if place is not None:
        place.mark(family, model, batch)
    torch.manual_seed(1)
    tokens = model.generate(**batch, max_new_tokens=8, min_new_tokens=8, pad_token_id=0, **how)
    return tokens.cpu()


@functools.cache
def alone(name):
    return generate(name, ALONE, **SAMPLED)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "t5", "whisper"])
def test_greedy_tokens_are_those_of_plain_pytorch(name):
    want = generate(name, do_sample=False)
    spmdx.debug.reset_counters()
    for plan in PLANS:
        assert torch.equal(generate(name, Place(plan), do_sample=False), want), plan
    assert spmdx.debug.fallbacks() == {}


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "whisper"])
def test_sampled_tokens_are_those_of_one_device(name):
    want = alone(name)
    assert not torch.equal(want, generate(name, ALONE, do_sample=False))
    spmdx.debug.reset_counters()
    for plan in PLANS:
        assert torch.equal(generate(name, Place(plan), **SAMPLED), want), plan
    assert spmdx.debug.fallbacks() == {}
