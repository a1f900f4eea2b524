# SPDX-License-Identifier: Apache-2.0
"""A class reads its own config; options that have no effect are refused; what stays in float32."""

import pytest
import spmdx
import torch
import transformers as hf
from spmdx.integrations.pretrained import from_pretrained

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)
MESH = spmdx.Mesh(range(2), (2,), ("fsdp",))
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4}
PICTURES = SMALL | {"image_size": 32, "patch_size": 8}


class OwnConfig(hf.PretrainedConfig):
    model_type = "own"

    def __init__(self, width=8, **more):
        self.width = width
        super().__init__(**more)


class OwnModel(hf.PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(config.width, config.width)
        self.post_init()


def clip():
    text = SMALL | {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2}
    return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=PICTURES, projection_dim=16))


def mistral():
    return hf.MistralForCausalLM(hf.MistralConfig(**SMALL, vocab_size=64, num_key_value_heads=2))


OF_OTHERS = [
    (hf.CLIPTextModel, clip),
    (hf.CLIPVisionModel, clip),
    (hf.LlamaForCausalLM, mistral),
    (OwnModel, lambda: OwnModel(OwnConfig(16))),
]


@pytest.mark.filterwarnings("ignore:.* are in a file")
@pytest.mark.parametrize(("cls", "make"), OF_OTHERS)
def test_a_class_reads_its_own_config(cls, make, tmp_path):
    make().save_pretrained(tmp_path)
    want = cls.from_pretrained(tmp_path).state_dict()
    got = from_pretrained(cls, tmp_path, MESH, "fsdp")
    assert type(got.config) is cls.config_class and got.state_dict().keys() == want.keys()
    for name, tensor in got.state_dict().items():
        assert torch.equal(tensor.cpu(), want[name]), name


def test_buffers_that_stay_in_float32_are_not_rounded(tmp_path):
    config = hf.DeepseekV3Config(
        **SMALL | {"num_key_value_heads": 4, "moe_intermediate_size": 16},
        **{"vocab_size": 64, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2},
        **{"topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16},
        **{"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    )
    model = hf.DeepseekV3ForCausalLM(config)
    bias = model.model.layers[1].mlp.gate.e_score_correction_bias
    bias += torch.rand(4)
    model.save_pretrained(tmp_path)
    got = from_pretrained(type(model), tmp_path, MESH, "fsdp", dtype=torch.bfloat16)
    gate = got.model.layers[1].mlp.gate
    assert gate.weight.dtype == torch.bfloat16
    assert torch.equal(gate.e_score_correction_bias.cpu(), bias)


def test_options_without_an_effect_are_refused(tmp_path):
    hf.ViTForImageClassification(hf.ViTConfig(**PICTURES)).save_pretrained(tmp_path)
    cls = hf.ViTForImageClassification
    for said, mend in (
        ({"torch_dtype": torch.bfloat16}, "Write dtype=torch.bfloat16"),
        ({"attn_implementaton": "eager"}, "Leave it out"),
    ):
        with pytest.raises(spmdx.ShardingError, match=f"{next(iter(said))}=.*{mend}"):
            from_pretrained(cls, tmp_path, MESH, "fsdp", **said)
    got = from_pretrained(cls, tmp_path, MESH, "fsdp", attn_implementation="eager")
    assert got.config._attn_implementation == "eager"
    for wrong in (torch.nn.Linear, got):
        with pytest.raises(spmdx.ShardingError, match="Expected one of transformers"):
            from_pretrained(wrong, tmp_path, MESH)


def test_a_dict_changes_some_entries_of_a_config_within(tmp_path):
    clip().save_pretrained(tmp_path)
    more = {"attention_dropout": 0.25}
    got = from_pretrained(hf.CLIPModel, tmp_path, MESH, "fsdp", vision_config=more)
    vision = got.config.vision_config
    assert (vision.attention_dropout, vision.hidden_size) == (0.25, 32)
