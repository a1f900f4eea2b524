# SPDX-License-Identifier: Apache-2.0
"""Unmodified Hugging Face models are planned for 1,024 devices, in evaluation and in training."""

import pytest
import spmdx
import torch
from architectures import ARCHITECTURES, ROWS, words

STATES = ("past_key_values", "cache_params")  # what a model gives to go on from


def mesh_of_1024():
    return spmdx.Mesh(range(1024), (128, 8), ("data", "model"))


def cut(batch, mesh):
    for tensor in batch.values():
        if isinstance(tensor, torch.Tensor):
            spmdx.mark_sharding(tensor, mesh, ("data", *[None] * (tensor.dim() - 1)))
    return batch


def built(architecture, mesh):
    """The model with the longer dim of each matrix cut along "model"."""
    model = architecture.build()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            longer = parameter.shape[0] >= parameter.shape[1]
            spmdx.mark_sharding(parameter, mesh, ("model", None) if longer else (None, "model"))
    spmdx.mark_step()
    return model


def asked(architecture):
    """A batch for evaluation: the labels of a pair are what its decoder reads."""
    batch = architecture.batch()
    labels = batch.pop("labels")
    if architecture.model.__name__.endswith("ConditionalGeneration"):
        batch["decoder_input_ids"] = labels
    return batch


def is_cut_along_both_axes(report):
    text = " ".join(value.sharding for value in report.values)
    return report.mesh == "Mesh(data=128, model=8)" and "@data" in text and "@model" in text


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_evaluation_is_planned(name):
    with spmdx.plan_only(), torch.no_grad():
        mesh = mesh_of_1024()
        model = built(ARCHITECTURES[name], mesh).eval()
        logits = model(**cut(asked(ARCHITECTURES[name]), mesh)).logits
        spmdx.mark_step()
        assert is_cut_along_both_axes(spmdx.explain())
        assert "data" in str(spmdx.get_sharding(logits).spec[0])


@pytest.mark.parametrize("name", [n for n, a in ARCHITECTURES.items() if a.caches])
def test_a_token_after_a_cache_is_planned(name):
    with spmdx.plan_only(), torch.no_grad():
        mesh = mesh_of_1024()
        model = built(ARCHITECTURES[name], mesh).eval()
        batch = cut(asked(ARCHITECTURES[name]), mesh)
        first = model(**batch, use_cache=True)
        spmdx.mark_step()
        token = cut({"token": words(ROWS, 1)}, mesh)["token"]
        key = "decoder_input_ids" if "decoder_input_ids" in batch else "input_ids"
        states = {s: getattr(first, s) for s in STATES if getattr(first, s, None) is not None}
        logits = model(**(batch | {key: token}), **states, use_cache=True).logits
        spmdx.mark_step()
        assert logits.shape[:2] == (ROWS, 1)
        assert is_cut_along_both_axes(spmdx.explain())


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_step_of_training_is_planned(name):
    with spmdx.plan_only():
        mesh = mesh_of_1024()
        model = built(ARCHITECTURES[name], mesh).train()
        optimizer = torch.optim.AdamW(model.parameters())
        loss = model(**cut(ARCHITECTURES[name].batch(), mesh)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        report = spmdx.explain()
        assert is_cut_along_both_axes(report)
        assert report.count("all_reduce") + report.count("reduce_scatter") > 0
        with pytest.raises(spmdx.ShardingError, match="plan_only"):
            loss.item()
