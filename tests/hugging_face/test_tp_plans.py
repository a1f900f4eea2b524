# SPDX-License-Identifier: Apache-2.0
"""Models cut as their own tensor parallel plans say give one device's loss and gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import spmdx
import torch
import transformers as hf
from families import FLOAT32, LLAMA, SMALL, VOCAB, WIDTH, tokens
from models import assert_equal

ROWS, LENGTH = 4, 4  # few tokens, so that a sum of activations is cheaper than gathered weights
FULL = LLAMA | {"num_key_value_heads": 4}
NARROW = FULL | {"head_dim": 8}
EXPERTS = NARROW | {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
}


@dataclass(frozen=True)
class Family:
    """`build` makes the model. `sums`: how often a layer sums up or gathers activations, by its
    plan, forward and back; None where tokens move between experts as well."""

    build: Callable
    sums: int | None = 4


def made(model, config, sums=4, **settings):
    return Family(lambda: model(config(**settings)), sums)


def with_experts(model, config, **settings):
    return made(model, config, None, **settings)


FAMILIES = {
    "llama": made(hf.LlamaForCausalLM, hf.LlamaConfig, **FULL),
    "mistral": made(hf.MistralForCausalLM, hf.MistralConfig, **NARROW),
    "qwen2": made(hf.Qwen2ForCausalLM, hf.Qwen2Config, **FULL),  # its biases are cut, too
    "qwen3": made(hf.Qwen3ForCausalLM, hf.Qwen3Config, **NARROW),
    "gemma": made(hf.GemmaForCausalLM, hf.GemmaConfig, **NARROW),  # its embedding is its last layer
    "cohere": made(
        hf.CohereForCausalLM, hf.CohereConfig, **LLAMA
    ),  # attention and MLP side by side
    # Queries, keys and values are one weight, gate and up another: what they give is gathered.
    "phi3": made(hf.Phi3ForCausalLM, hf.Phi3Config, sums=8, **FULL, **TOKENS),
    "grouped": made(hf.LlamaForCausalLM, hf.LlamaConfig, sums=None, **LLAMA),  # 2 heads for 4
    "olmo2": made(hf.Olmo2ForCausalLM, hf.Olmo2Config, **FULL),
    "mixtral": with_experts(hf.MixtralForCausalLM, hf.MixtralConfig, **LLAMA, num_local_experts=4),
    "qwen3_moe": with_experts(hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig, **EXPERTS),
    "deepseek_v3": with_experts(hf.DeepseekV3ForCausalLM, hf.DeepseekV3Config, **(LLAMA | LATENT)),
}


def step(name, mesh=None):
    """Loss and gradients on the CPU; with a mesh, its weights cut by "auto", and the report."""
    torch.manual_seed(0)
    model, ids = FAMILIES[name].build(), tokens(ROWS, LENGTH)
    if mesh is not None:
        model, ids = model.to("spmdx"), ids.to("spmdx")
        spmdx.nn.shard_module(model, mesh, "auto")
        spmdx.sync(wait=True)
        spmdx._C.clear_cache()
        spmdx.debug.reset_counters()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    spmdx.sync(wait=True)
    report = spmdx.explain() if mesh is not None else None
    gradients = {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}
    return model, loss.detach().cpu(), gradients, report


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_plan_of_a_model_gives_what_one_device_does(name, devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("model",))
    _, want, gradients, _ = step(name)
    model, loss, got, _ = step(name, mesh)
    assert_equal(loss, want, "the loss", 4 * FLOAT32)
    assert got.keys() == gradients.keys()
    for parameter, gradient in gradients.items():
        assert_equal(got[parameter], gradient, f"the gradient of {parameter}", 4 * FLOAT32)
    assert spmdx.debug.fallbacks() == {}
    assert any(spmdx.get_sharding(p).spec != (None,) * p.dim() for p in model.parameters())


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.sums])
def test_a_layer_moves_activations_as_often_as_its_plan_asks_for(name):
    """And at the two ends of the model the rows of the table of words, and their gradients."""
    _, _, _, report = step(name, spmdx.Mesh(range(4), (4,), ("model",)))
    activation = 2 * 3 / 4 * ROWS * LENGTH * WIDTH * 4  # bytes that a sum of it brings a device
    logits = 3 / 4 * ROWS * LENGTH * VOCAB * 4
    moved = [c for c in report.collectives if c.bytes >= activation and c.bytes != logits]
    assert sum(c.count for c in moved) <= SMALL["num_hidden_layers"] * FAMILIES[name].sums + 2


def test_the_styles_of_a_plan_cut_these_dims():
    model = FAMILIES["qwen2"].build().to("spmdx")
    mesh = spmdx.Mesh(range(8), (2, 4), ("data", "tp"))
    spmdx.nn.shard_module(model, mesh, "auto", axis="tp")
    layer = model.model.layers[1]
    assert spmdx.get_sharding(layer.self_attn.q_proj.weight).spec == ("tp", None)
    assert spmdx.get_sharding(layer.self_attn.q_proj.bias).spec == ("tp",)
    assert spmdx.get_sharding(layer.self_attn.o_proj.weight).spec == (None, "tp")
    assert spmdx.get_sharding(layer.mlp.down_proj.weight).spec == (None, "tp")
    assert spmdx.get_sharding(model.lm_head.weight).spec == ("tp", None)
    assert spmdx.get_annotation(model.model.norm.weight) is None


def test_experts_of_a_plan_are_cut_within_each():
    model = FAMILIES["mixtral"].build().to("spmdx")
    spmdx.nn.shard_module(model, spmdx.Mesh(range(4), (4,), ("model",)), "auto")
    experts = model.model.layers[0].mlp.experts
    assert spmdx.get_sharding(experts.gate_up_proj).spec == (None, "model", None)
    assert spmdx.get_sharding(experts.down_proj).spec == (None, None, "model")


class Planned(torch.nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.layer, self.tp_plan = torch.nn.Linear(4, 4), plan


@pytest.mark.parametrize(
    ("module", "plan", "axis", "said"),
    [
        (torch.nn.Linear(2, 2), "auto", "model", "Linear brings none"),
        (torch.nn.Linear(2, 2), "Auto", "model", "the plan is 'Auto'"),
        (Planned({"layer": "diagonal"}), "auto", "model", "the style 'diagonal'"),
        (Planned({"other": "colwise"}), "auto", "model", "cuts none of its parameters"),
        (Planned({"layer": "colwise"}), "auto", "tp", "has no axis 'tp'"),
    ],
)
def test_what_is_no_plan_is_refused_and_marks_nothing(module, plan, axis, said):
    module = module.to("spmdx")
    with pytest.raises(spmdx.ShardingError, match=said):
        spmdx.nn.shard_module(module, spmdx.get_1d_mesh("model"), plan, axis)
    assert all(spmdx.get_annotation(p) is None for p in module.parameters())
