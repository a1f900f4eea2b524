# SPDX-License-Identifier: Apache-2.0
"""What the examples move: what is cut stays cut, and is moved in the way that each shows."""

import pytest
import spmdx
import torch
from example_cases import CASES, mesh_of, module_of, run

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


def report_of(name, monkeypatch):
    """The report of the example's third step on 8 devices."""
    reports, end = [], spmdx.mark_step

    def mark_step():
        end()
        reports.append(spmdx.explain())

    monkeypatch.setattr(spmdx, "mark_step", mark_step)
    module_of(name).train(mesh_of(name, CASES[name].shapes[0]), 3)
    return reports[-1]


def moved(report):
    """Bytes by kind and axes of the mesh."""
    sums = {}
    for c in report.collectives:
        sums[c.kind, c.axes] = sums.get((c.kind, c.axes), 0) + c.bytes
    return sums


def kinds(report):
    return {c.kind for c in report.collectives}


@pytest.mark.parametrize("name", ["train_lora", "train_gan", "train_lstm"])
def test_only_sums_are_moved(name, monkeypatch):
    assert kinds(report_of(name, monkeypatch)) == {"all_reduce"}


def test_llama_sums_activations_by_one_axis_and_gradients_by_the_other(monkeypatch):
    llama, report = module_of("train_llama"), report_of("train_llama", monkeypatch)
    activation = llama.BATCH // 4 * llama.CONTEXT * llama.WIDTH * 4
    sums = [c for c in report.collectives if c.kind == "all_reduce" and c.axes == ("model",)]
    assert [c.bytes for c in sums if c.bytes > 1000] == [activation] * 4 * llama.LAYERS
    assert sum(c.bytes for c in report.collectives if c.kind != "all_reduce") <= activation
    gradients = moved(report)["all_reduce", ("data",)]
    weights = 4 * sum(p.numel() for p in llama.Llama(103).parameters())
    assert gradients < 2 * weights * 3 // 4 * 0.7, "weights that are cut have gradients that are"


def test_experts_get_and_send_tokens_by_all_to_alls(monkeypatch):
    moe, report = module_of("train_moe"), report_of("train_moe", monkeypatch)
    assert kinds(report) == {"all_to_all", "all_reduce"}
    assert report.count("all_to_all") == 4 * moe.LAYERS
    tokens = moe.EXPERTS * moe.CAPACITY * moe.BATCH * moe.WIDTH * 4 // 8
    assert {c.bytes for c in report.collectives if c.kind == "all_to_all"} == {tokens * 7 // 8}


def test_the_vit_gathers_parameters_and_scatters_gradients(monkeypatch):
    report = report_of("train_vit", monkeypatch)
    size = 4 * sum(p.numel() for p in module_of("train_vit").ViT().parameters())
    sums = moved(report)
    assert size * 7 // 8 * 0.95 < sums["reduce_scatter", ("fsdp",)] <= size * 7 // 8
    assert sums["all_gather", ("fsdp",)] < 2 * size * 7 // 8
    assert sums["all_reduce", ("fsdp",)] < 100


def test_the_resnet_fetches_rows_from_neighbours(monkeypatch):
    report = report_of("train_resnet", monkeypatch)
    assert kinds(report) == {"collective_permute", "all_reduce"}
    permutes = [c for c in report.collectives if c.kind == "collective_permute"]
    assert {c.axes for c in permutes} == {("rows",)} and "halo" in permutes[0].cause
    assert max(c.bytes for c in permutes) <= 16 * 2 * 8 * 16 * 4  # images, rows, columns, channels


def test_decoding_leaves_the_cache_where_it_is(monkeypatch):
    generate, mesh = module_of("generate"), mesh_of("generate", (4, 2))
    model, _ = generate.train(mesh, 2)
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    prompt = torch.zeros(generate.BATCH, generate.WORD + 1, dtype=torch.long).to("spmdx")
    spmdx.mark_sharding(prompt, mesh, ("data", None))
    generate.generate(model, prompt, generate.WORD)
    assert spmdx.debug.counters()["plans_compiled"] <= 3  # the prompt, the first token, the others
    cache = model.blocks[0].keys
    assert spmdx.get_sharding(cache).spec == ("data", "model", None, None)
    assert cache.local_shards[0].data.shape == (16, 2, generate.LENGTH, 16)
    report = spmdx.explain()
    assert sum(c.bytes for c in report.collectives if c.kind != "all_reduce") < 2000


def test_another_round_of_the_game_needs_no_other_plan():
    spmdx.sync(wait=True)  # what tests before left is not part of the first plan
    run("train_policy", (8,), steps=3)
    spmdx.debug.reset_counters()
    run("train_policy", (8,), steps=3)
    assert spmdx.debug.counters()["plans_compiled"] == 0
