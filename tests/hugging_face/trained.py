# SPDX-License-Identifier: Apache-2.0
"""A small Llama trained by a Trainer of transformers, here on the CPU and there on the device."""

import torch
import transformers
from spmdx.integrations.transformers import TrainingArguments
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 96


def llama(**settings):
    """The same weights every time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=8,
        **settings,
    )
    return LlamaForCausalLM(config)


def rows(count, seed=1, length=8):
    drawn = torch.randint(
        VOCABULARY, (count, length), generator=torch.Generator().manual_seed(seed)
    )
    labels = drawn.clone()
    labels[::3, -2:] = -100
    return [{"input_ids": x, "labels": y} for x, y in zip(drawn, labels, strict=True)]


def arguments(folder, **settings):
    chosen = {
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 6,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "logging_steps": 2,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return TrainingArguments(output_dir=str(folder), **{**chosen, **settings})


def trainer(kind, folder, settings=None, model=None, data=None, **named):
    """A trainer of a kind, such as ``transformers.Trainer``; that one trains on the CPU."""
    settings = dict(settings or {})
    if kind is transformers.Trainer:
        settings["use_cpu"] = True
        for name in ("fsdp", "fsdp_config", "parallelism_config"):
            settings.pop(name, None)
    return kind(
        model=llama() if model is None else model,
        args=arguments(folder, **settings),
        train_dataset=rows(50) if data is None else data,
        **named,
    )


def losses(made):
    return [entry["loss"] for entry in made.state.log_history if "loss" in entry]


def norms(made):
    return [entry["grad_norm"] for entry in made.state.log_history if "grad_norm" in entry]


def farthest(a, b):
    """The largest difference of two lists of as many numbers, relative above 1."""
    assert len(a) == len(b) > 0
    return max(abs(x - y) / max(1, abs(y)) for x, y in zip(a, b, strict=True))
