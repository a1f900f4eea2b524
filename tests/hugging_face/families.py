# SPDX-License-Identifier: Apache-2.0
"""Hugging Face models from small random configs, with a batch and what is peculiar of each."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers as hf

VOCAB, WIDTH, LAYERS, HEADS, LENGTH = 98, 32, 2, 4, 6  # 98: 4 and 8 devices do not divide it
SMALL = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS}
FLOAT32 = 5e-6
LLAMA = SMALL | {"vocab_size": VOCAB, "intermediate_size": 64, "num_key_value_heads": 2}


def tokens(*shape):
    return torch.randint(3, VOCAB, shape)


def text(n):
    ids = tokens(n, LENGTH)
    return {"input_ids": ids, "labels": ids.clone()}


def padded(n):
    """Rows of different lengths, as a tokenizer pads them: the labels leave the padding out."""
    batch = text(n)
    lengths = torch.arange(n) % (LENGTH - 2) + 3
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    batch["attention_mask"] = mask
    batch["labels"] = batch["labels"].masked_fill(mask == 0, -100)
    return batch


def pair(n):
    return {"input_ids": tokens(n, LENGTH), "labels": tokens(n, LENGTH - 1)}


def image(n, size):
    return {"pixel_values": torch.randn(n, 3, size, size), "labels": torch.randint(0, 5, (n,))}


def speech(n):
    return {"input_features": torch.randn(n, 8, 12), "labels": tokens(n, LENGTH)}


@dataclass(frozen=True)
class Family:
    """One model.

    Attributes:
        build: the model from its config; keyword arguments change the config.
        batch: a batch of n rows, as keyword arguments of the model.
        rows: words in names of weights whose inputs are cut in tensor parallel; of others it is the
            outputs.
        transposed: words in names of weights that are stored as (inputs, outputs).
        dropout: numbers of the config that are 0 here.
        relative: how far results may differ, of a tensor's largest element: the model itself rounds
            to float32 somewhere where this is not 1e-9.
        dtype: what it is computed in.
        reads: how often its forward pass looks at a value.
    """

    build: Callable
    batch: Callable
    rows: tuple = ()
    transposed: tuple = ()
    dropout: tuple = ()
    relative: float = 1e-9
    dtype: torch.dtype = torch.float64
    reads: int = 0


def made_by(model, config, **settings):
    return lambda **changes: model(config(**{**settings, **changes}))


FAMILIES = {
    "gpt2": Family(
        made_by(
            hf.GPT2LMHeadModel,
            hf.GPT2Config,
            vocab_size=VOCAB,
            n_positions=16,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        text,
        rows=("c_proj",),
        transposed=("c_attn", "c_fc", "c_proj"),
        dropout=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        relative=FLOAT32,
    ),
    "llama": Family(
        made_by(hf.LlamaForCausalLM, hf.LlamaConfig, **LLAMA),
        text,
        rows=("o_proj", "down_proj"),
        dropout=("attention_dropout",),
        relative=FLOAT32,
    ),
    "mixtral": Family(
        made_by(
            hf.MixtralForCausalLM,
            hf.MixtralConfig,
            **LLAMA,
            num_local_experts=4,
            output_router_logits=True,
        ),
        text,
        rows=("o_proj",),
        dropout=("attention_dropout",),
        relative=FLOAT32,
        dtype=torch.float32,  # PyTorch's grouped product has no other
    ),
    "bert": Family(
        made_by(
            hf.BertForMaskedLM,
            hf.BertConfig,
            **SMALL,
            vocab_size=VOCAB,
            intermediate_size=64,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        padded,
        rows=("output.dense",),
        dropout=("hidden_dropout_prob", "attention_probs_dropout_prob"),
        reads=1,  # whether the mask masks anything
    ),
    "t5": Family(
        made_by(
            hf.T5ForConditionalGeneration,
            hf.T5Config,
            vocab_size=VOCAB,
            d_model=WIDTH,
            d_kv=8,
            d_ff=64,
            num_layers=LAYERS,
            num_heads=HEADS,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        ),
        pair,
        rows=(".o.", "wo"),
        dropout=("dropout_rate",),
        relative=FLOAT32,
    ),
    "vit": Family(
        made_by(
            hf.ViTForImageClassification,
            hf.ViTConfig,
            **SMALL,
            intermediate_size=64,
            image_size=16,
            patch_size=8,
            num_labels=5,
        ),
        lambda n: image(n, 16),
        rows=("attention.o_proj", "fc2"),
        dropout=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    ),
    "whisper": Family(
        made_by(
            hf.WhisperForConditionalGeneration,
            hf.WhisperConfig,
            vocab_size=VOCAB,
            d_model=WIDTH,
            num_mel_bins=8,
            encoder_layers=LAYERS,
            decoder_layers=LAYERS,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=6,
            max_target_positions=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        speech,
        rows=("out_proj", "fc2"),
        dropout=("dropout", "attention_dropout", "activation_dropout"),
    ),
    "resnet": Family(
        made_by(
            hf.ResNetForImageClassification,
            hf.ResNetConfig,
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            layer_type="basic",
            num_labels=5,
        ),
        lambda n: image(n, 32),
    ),
}
