# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers, and their checkpoints in several files."""

import torch
import transformers as hf

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = SMALL | {"vocab_size": 64, "intermediate_size": 64, "num_key_value_heads": 2}
BERT = SMALL | {"vocab_size": 64, "intermediate_size": 64}
MODELS = {
    "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**LLAMA)),
    "tied": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**LLAMA, tie_word_embeddings=True)),
    "experts": (hf.MixtralForCausalLM, lambda: hf.MixtralConfig(**LLAMA, num_local_experts=4)),
    "bert": (hf.BertForSequenceClassification, lambda: hf.BertConfig(**BERT)),
    "gpt2": (
        hf.GPT2LMHeadModel,
        lambda: hf.GPT2Config(
            vocab_size=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
        ),
    ),
}


def saved(name, folder, shard="20KB", **settings):
    """A model in evaluation mode, and its files."""
    cls, config = MODELS[name]
    config = config()
    for key, value in settings.items():
        setattr(config, key, value)
    torch.manual_seed(0)
    model = cls(config).eval()
    model.save_pretrained(folder, max_shard_size=shard)
    return cls, model
