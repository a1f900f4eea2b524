# SPDX-License-Identifier: Apache-2.0
"""Architectures of Hugging Face in sizes that 1,024 devices divide, each with a batch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers as hf

ROWS, LENGTH = 256, 64
SMALL = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2}
WORDS = {"vocab_size": 4096, "max_position_embeddings": 128}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODES = ENDS | {"decoder_start_token_id": 1}
BERT = SMALL | WORDS | {"intermediate_size": 1024}
LLAMA = BERT | ENDS | {"num_key_value_heads": 8}
HEADS_OF_64 = LLAMA | {"head_dim": 64}
EXPERTS = LLAMA | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
LATENT = LLAMA | {
    "q_lora_rank": 256,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
GPT2 = {"vocab_size": 4096, "n_positions": 128, "n_embd": 512, "n_layer": 2, "n_head": 8}
T5 = {"vocab_size": 4096, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 2, "num_heads": 8}
WHISPER = {
    "vocab_size": 4096,
    "d_model": 512,
    "num_mel_bins": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "max_source_positions": 64,
    "max_target_positions": 128,
}
MAMBA = {"vocab_size": 4096, "hidden_size": 512, "num_hidden_layers": 2, "state_size": 8}


def words(*shape):
    return torch.randint(3, 4096, shape, device="spmdx")


def text():
    ids = words(ROWS, LENGTH)
    return {"input_ids": ids, "labels": ids.clone()}


def padded():
    """Rows of different lengths: the mask comes from the host, as that of a tokenizer."""
    lengths = torch.arange(ROWS) % (LENGTH - 8) + 8
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    return text() | {"attention_mask": mask.to("spmdx")}


def pair():
    return {"input_ids": words(ROWS, LENGTH), "labels": words(ROWS, LENGTH)}


def images():
    pixels = torch.randn(ROWS, 3, 64, 64, device="spmdx")
    return {"pixel_values": pixels, "labels": torch.randint(0, 8, (ROWS,), device="spmdx")}


def speech():
    sounds = torch.randn(ROWS, 64, 128, device="spmdx")
    return {"input_features": sounds, "labels": words(ROWS, LENGTH)}


@dataclass(frozen=True)
class Architecture:
    """A model by its class and its config.

    Attributes:
        caches: whether its forward pass takes and gives a cache of keys and values.
        on_meta: it is built on the meta device, since it draws its first weights until they fit.
    """

    model: type
    config: type
    settings: dict
    batch: Callable = text
    caches: bool = True
    on_meta: bool = False

    def build(self) -> torch.nn.Module:
        config = self.config(**self.settings)
        if not self.on_meta:
            with torch.device("spmdx"):
                return self.model(config)
        with torch.device("meta"):
            model = self.model(config)
        return model.to_empty(device="spmdx")


def decoder(name, settings, **changes):
    model, config = getattr(hf, f"{name}ForCausalLM"), getattr(hf, f"{name}Config")
    return Architecture(model, config, settings | changes)


ARCHITECTURES = {
    "llama": decoder("Llama", LLAMA),
    "mistral": decoder("Mistral", LLAMA, sliding_window=32),
    "qwen2": decoder("Qwen2", LLAMA),
    "qwen3": decoder("Qwen3", HEADS_OF_64),
    "gemma2": decoder("Gemma2", HEADS_OF_64, sliding_window=32),
    "phi3": decoder("Phi3", LLAMA),
    "olmo2": decoder("Olmo2", LLAMA),
    "gpt2": Architecture(hf.GPT2LMHeadModel, hf.GPT2Config, GPT2),
    "gpt neox": decoder("GPTNeoX", BERT),
    "opt": decoder("OPT", SMALL | WORDS, ffn_dim=1024, word_embed_proj_dim=512),
    "bloom": decoder("Bloom", {"vocab_size": 4096, "hidden_size": 512, "n_layer": 2, "n_head": 8}),
    "falcon": decoder("Falcon", SMALL, vocab_size=4096, new_decoder_architecture=True),
    "mixtral": decoder("Mixtral", LLAMA, num_local_experts=8, output_router_logits=True),
    "qwen2 moe": decoder("Qwen2Moe", EXPERTS, shared_expert_intermediate_size=512),
    "qwen3 moe": decoder("Qwen3Moe", EXPERTS, head_dim=64),
    "deepseek v2": decoder("DeepseekV2", LATENT),
    "deepseek v3": decoder("DeepseekV3", LATENT),
    "mamba": decoder("Mamba", MAMBA | ENDS),
    "bert": Architecture(hf.BertForMaskedLM, hf.BertConfig, BERT, padded, caches=False),
    "roberta": Architecture(hf.RobertaForMaskedLM, hf.RobertaConfig, BERT, padded, caches=False),
    "t5": Architecture(hf.T5ForConditionalGeneration, hf.T5Config, T5 | DECODES, pair),
    "whisper": Architecture(
        hf.WhisperForConditionalGeneration, hf.WhisperConfig, WHISPER | DECODES, speech
    ),
    "vit": Architecture(
        hf.ViTForImageClassification,
        hf.ViTConfig,
        SMALL | {"intermediate_size": 1024, "image_size": 64, "patch_size": 8, "num_labels": 8},
        images,
        caches=False,
        on_meta=True,
    ),
}
