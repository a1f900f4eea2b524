# SPDX-License-Identifier: Apache-2.0
"""Models loaded in slices are the models that were saved, and a process reads its share of them."""

import json
import pathlib
import shutil

import launch
import pretrained_cases as cases
import pytest
import safetensors.torch
import spmdx
import torch
import transformers as hf
from spmdx.integrations.pretrained import from_pretrained

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)
IDS = torch.arange(16).view(2, 8)


def mesh(shape=(4,), names=("model",)):
    return spmdx.Mesh(range(torch.Size(shape).numel()), shape, names)


def assert_same(got, want):
    own, saved = got.state_dict(), want.state_dict()
    assert own.keys() == saved.keys()
    for name, tensor in saved.items():
        assert own[name].device.type == "spmdx" and torch.equal(own[name].cpu(), tensor), name
    with torch.no_grad():
        logits = got(IDS.to("spmdx")).logits.cpu()
        assert torch.allclose(logits, want(IDS).logits, atol=1e-6)


PLANS = [
    ("llama", "auto", mesh()),
    ("llama", "auto", mesh((3,))),
    ("tied", "auto", mesh((2, 4), ("fsdp", "model"))),
    ("tied", "fsdp", mesh((8,), ("fsdp",))),
    ("experts", "auto", mesh((2, 2), ("fsdp", "model"))),
    ("experts", {"*.experts.gate_up_proj": ("model", None, None)}, mesh()),
    ("experts", {"*.experts.gate_up_proj": (None, "model", None)}, mesh((8,))),
    ("experts", {"*.experts.gate_up_proj": (None, "model", None)}, mesh((3,))),
    ("experts", None, mesh()),
    ("bert", "fsdp", mesh((3,), ("fsdp",))),
    ("gpt2", "auto", mesh((4,), ("fsdp",))),
]


@pytest.mark.parametrize(("name", "plan", "where"), PLANS)
def test_what_is_loaded_is_what_was_saved(name, plan, where, tmp_path):
    cls, want = cases.saved(name, tmp_path)
    assert (tmp_path / "model.safetensors.index.json").exists()
    got = from_pretrained(cls, tmp_path, where, plan)
    assert_same(got, want)
    assert not got.training
    if plan is not None:
        assert any(spmdx.get_annotation(p) is not None for p in got.parameters())
    if name == "tied":
        assert got.lm_head.weight is got.model.embed_tokens.weight
    if name == "experts":
        files = [safetensors.torch.load_file(f) for f in tmp_path.glob("*.safetensors")]
        names = {key for file in files for key in file}
        assert not any("gate_up_proj" in key for key in names)  # each expert is stored by itself


def test_auto_classes_dtypes_and_the_config(tmp_path):
    _, want = cases.saved("llama", tmp_path)
    auto = hf.AutoModelForCausalLM
    got = from_pretrained(auto, tmp_path, mesh(), dtype=torch.bfloat16, rms_norm_eps=0.5)
    assert type(got) is hf.LlamaForCausalLM and got.config.rms_norm_eps == 0.5
    weight = got.model.layers[0].mlp.up_proj.weight
    assert weight.dtype == torch.bfloat16 and weight.partition_spec == ("model", None)
    assert torch.equal(weight.cpu(), want.model.layers[0].mlp.up_proj.weight.bfloat16())


def test_a_base_model_and_a_head_that_is_in_no_file(tmp_path):
    _, want = cases.saved("bert", tmp_path)
    base = from_pretrained(hf.BertModel, tmp_path, mesh((2,), ("fsdp",)), "fsdp")
    other = want.bert.embeddings.word_embeddings.weight
    assert torch.equal(base.embeddings.word_embeddings.weight.cpu(), other)
    with pytest.warns(UserWarning, match="qa_outputs.* are in no file"):
        head = from_pretrained(hf.BertForQuestionAnswering, tmp_path, mesh((2,), ("fsdp",)), "fsdp")
    drawn = head.qa_outputs.weight.cpu()
    assert 0 < drawn.std() < 0.1 and torch.equal(head.qa_outputs.bias.cpu(), torch.zeros(2))


def test_keys_of_old_files_are_renamed(tmp_path):
    cls, want = cases.saved("bert", tmp_path, shard="1GB")
    file = tmp_path / "model.safetensors"
    held = safetensors.torch.load_file(file)
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): t for name, t in held.items()}
    assert old.keys() != held.keys()
    safetensors.torch.save_file(old, file, {"format": "pt"})
    assert_same(from_pretrained(cls, tmp_path, mesh((2,), ("fsdp",)), "fsdp"), want)


def test_conversions_that_do_not_join_are_made_of_the_whole(tmp_path, monkeypatch):
    """Here: two halves, stored interleaved along dim 0."""
    from spmdx._integrations.pretrained import names
    from transformers.core_model_loading import Interleave, WeightConverter

    cls, want = cases.saved("llama", tmp_path, shard="1GB")
    file = tmp_path / "model.safetensors"
    held = safetensors.torch.load_file(file)
    for name in [name for name in held if "up_proj" in name]:
        stored = held.pop(name)
        way = Interleave(0, inverse=True).convert({"a": stored}, ["a"], ["b"])["b"]
        held[name.replace("up_proj", "woven_proj")] = way
    safetensors.torch.save_file(held, file, {"format": "pt"})
    woven = WeightConverter("woven_proj.weight", "up_proj.weight", [Interleave(0)])
    monkeypatch.setattr(names, "get_model_conversion_mapping", lambda model: [woven])
    assert_same(from_pretrained(cls, tmp_path, mesh()), want)


def test_the_plans_of_a_model_cut_by_both_axes():
    cls, config = cases.MODELS["llama"]
    model = cls(config()).to("spmdx")
    spmdx.nn.shard_module(model, mesh((2, 4), ("fsdp", "model")), "auto")
    layer = model.model.layers[0]
    assert layer.self_attn.q_proj.weight.partition_spec == ("model", "fsdp")
    assert layer.mlp.down_proj.weight.partition_spec == ("fsdp", "model")
    assert layer.input_layernorm.weight.partition_spec == ("fsdp",)
    torch.manual_seed(0)
    plain = cls(config())
    model.load_state_dict(plain.state_dict())
    loss = model(input_ids=IDS.to("spmdx"), labels=IDS.to("spmdx")).loss
    loss.backward()
    want = plain(input_ids=IDS, labels=IDS).loss
    want.backward()
    assert loss.item() == pytest.approx(want.item(), abs=1e-6)
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(own.grad.cpu(), other.grad, atol=1e-6)


def test_a_style_that_is_not_known_is_refused():
    cls, config = cases.MODELS["llama"]
    model = cls(config()).to("spmdx")
    model._fsdp_plan = {"model.norm": "sometimes"}
    with pytest.raises(spmdx.ShardingError, match="'model.norm' the style 'sometimes'"):
        spmdx.nn.shard_module(model, mesh((2,), ("fsdp",)), "auto")
    assert all(spmdx.get_annotation(p) is None for p in model.parameters())


def test_what_does_not_fit_is_said(tmp_path):
    cls, _ = cases.saved("llama", tmp_path / "a")
    error = spmdx.checkpoint.CheckpointError
    with pytest.raises(error, match="is no folder with a config.json"):
        from_pretrained(cls, tmp_path, mesh())
    with pytest.raises(spmdx.ShardingError, match="device_map='auto' is no option"):
        from_pretrained(cls, tmp_path / "a", mesh(), device_map="auto")
    with pytest.raises(spmdx.ShardingError, match="dtype is 'half'"):
        from_pretrained(cls, tmp_path / "a", mesh(), dtype="half")
    with pytest.raises(error, match="has shape .* in the model"):
        from_pretrained(cls, tmp_path / "a", mesh(), hidden_size=64)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    next((tmp_path / "b").glob("*.safetensors")).unlink()
    with pytest.raises(error):
        from_pretrained(cls, tmp_path / "b", mesh())


def test_a_process_reads_and_holds_its_half(tmp_path):
    """Two processes of two devices, experts joined as they are read, tied embeddings."""
    cases.saved("experts", tmp_path / "small", tie_word_embeddings=True)
    big = {"hidden_size": 512, "intermediate_size": 512, "vocab_size": 4096}
    big |= {"num_local_experts": 8, "tie_word_embeddings": True}
    _, model = cases.saved("experts", tmp_path / "big", "20MB", **big)
    whole = sum(p.numel() * 4 for p in model.parameters())
    with torch.no_grad():
        want = model(IDS).logits.double().sum().item()
    player = str(pathlib.Path(__file__).parent / "players" / "pretrained_load.py")
    for text in launch.run(player, 2, 2, str(tmp_path)):
        said = json.loads(text.splitlines()[-1])
        print(f"whole {whole:,}, read {said['read']:,}, resident {said['grown']:,}")
        assert said["held"] == pytest.approx(whole / 2, rel=0.01)
        assert said["read"] == pytest.approx(whole / 2, rel=0.01)
        assert said["grown"] < 0.65 * whole
        assert said["sum"] == pytest.approx(want, rel=1e-4)
