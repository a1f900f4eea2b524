# SPDX-License-Identifier: Apache-2.0
"""The Trainer on 8 devices trains, evaluates, saves and resumes as it does on the CPU."""

import math
import subprocess
import sys

import pytest
import spmdx
import torch
import transformers
from accelerate import ParallelismConfig
from spmdx.integrations.transformers import Seq2SeqTrainer, Trainer, TrainerMixin
from trained import farthest, llama, losses, norms, rows, trainer

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

MESHES = {
    "data": {},
    "fsdp": {"fsdp": True},
    "hybrid": {
        "fsdp": True,
        "parallelism_config": ParallelismConfig(dp_replicate_size=2, dp_shard_size=4),
    },
    "tensor": {"parallelism_config": ParallelismConfig(tp_size=8)},
    "both": {
        "fsdp": True,
        "fsdp_config": {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
        "parallelism_config": ParallelismConfig(dp_shard_size=2, tp_size=4),
    },
}
SPECS = {
    "data": (None, None),
    "fsdp": ("dp_shard", None),
    "hybrid": ("dp_shard", None),
    "tensor": ("tp", None),
    "both": ("tp", "dp_shard"),
}


def both(tmp_path, settings, **named):
    """What the frame's own trainer does on the CPU, and what ours does."""
    made = []
    for kind in transformers.Trainer, Trainer:
        made.append(trainer(kind, tmp_path / kind.__module__, settings, **named))
        made[-1].train()
    return made


@pytest.mark.parametrize("mode", MESHES)
def test_losses_and_weights_are_those_of_the_cpu(mode, tmp_path):
    cpu, ours = both(tmp_path, MESHES[mode])
    assert ours.args.device.type == "spmdx"
    assert farthest(losses(cpu), losses(ours)) < 1e-6
    assert farthest(norms(cpu), norms(ours)) < 1e-5
    weight = ours.model.model.layers[0].self_attn.q_proj.weight
    assert weight.partition_spec == SPECS[mode]
    for name, parameter in cpu.model.named_parameters():
        found = ours.model.get_parameter(name).detach().cpu()
        assert (found - parameter).abs().max() < 1e-4, name
    held = ours.optimizer.state[weight]["exp_avg"]
    assert spmdx.get_sharding(held).spec == SPECS[mode]


@pytest.mark.parametrize(
    "settings, tolerance",
    [
        ({"gradient_accumulation_steps": 3}, 1e-6),
        ({"gradient_checkpointing": True}, 1e-6),
        ({"bf16": True}, 2e-2),
        ({"max_grad_norm": 0.0, "per_device_train_batch_size": 7}, 1e-6),
        ({"label_smoothing_factor": 0.1}, 1e-6),
        ({"optim": "adafactor"}, 1e-6),
        ({"lr_scheduler_type": "cosine", "warmup_steps": 3, "weight_decay": 0.1}, 1e-6),
        ({"logging_nan_inf_filter": False, "logging_steps": 1}, 1e-6),
    ],
    ids=str,
)
def test_settings_mean_what_they_mean_on_the_cpu(settings, tolerance, tmp_path):
    cpu, ours = both(tmp_path, {**MESHES["fsdp"], **settings})
    assert farthest(losses(cpu), losses(ours)) < tolerance


class Unending(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(rows(50))


def test_a_data_set_without_a_length_is_read_by_every_process_whole(tmp_path):
    cpu, ours = both(tmp_path, {"max_steps": 8}, data=Unending())
    assert farthest(losses(cpu), losses(ours)) < 1e-6


def test_spmdx_itself_imports_no_frame():
    code = "import sys, spmdx; print({'transformers', 'accelerate'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def count_equal(predictions):
    logits, labels = predictions.predictions, predictions.label_ids
    return {"equal": float((logits.argmax(-1) == labels).mean())}


def test_evaluate_and_predict_are_those_of_the_cpu(tmp_path):
    named = {"eval_dataset": rows(17, seed=2), "compute_metrics": count_equal}
    cpu, ours = both(tmp_path, {"eval_strategy": "epoch"}, **named)
    found = [made.evaluate() for made in (cpu, ours)]
    assert abs(found[0]["eval_loss"] - found[1]["eval_loss"]) < 1e-6
    assert found[0]["eval_equal"] == found[1]["eval_equal"]
    there, here = (made.predict(rows(13, seed=3)) for made in (cpu, ours))
    assert here.predictions.shape == (13, 8, 96)
    assert abs(there.predictions - here.predictions).max() < 1e-4
    assert (there.label_ids == here.label_ids).all()


@pytest.mark.parametrize("mode", ["data", "both"])
def test_a_run_that_is_resumed_ends_as_one_that_was_not_stopped(mode, tmp_path):
    settings = {**MESHES[mode], "save_strategy": "steps", "save_steps": 4}
    model = {"model": llama(attention_dropout=0.1)}
    whole = trainer(Trainer, tmp_path / "whole", settings, **model)
    whole.train()
    # From the middle of the first epoch, and of the second, with numbers drawn for dropout.
    for step in 4, 8:
        resumed = trainer(Trainer, tmp_path / "whole", settings, llama(attention_dropout=0.1))
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert farthest(losses(resumed), losses(whole)) < 1e-6
        weight = resumed.model.lm_head.weight
        assert (weight - whole.model.lm_head.weight).abs().max().item() < 1e-5
        assert weight.partition_spec == whole.model.lm_head.weight.partition_spec


def test_checkpoints_go_to_plain_transformers_and_back(tmp_path):
    settings = {**MESHES["both"], "save_strategy": "steps", "save_steps": 4}
    whole, _ = both(tmp_path, settings)
    ours = tmp_path / Trainer.__module__ / "checkpoint-4"
    theirs = tmp_path / transformers.Trainer.__module__ / "checkpoint-4"
    assert sorted(set(p.name for p in ours.iterdir()) - {"rng_state_spmdx.pth"}) == sorted(
        p.name for p in theirs.iterdir()
    )
    loaded = transformers.AutoModelForCausalLM.from_pretrained(ours)
    expected = transformers.AutoModelForCausalLM.from_pretrained(theirs)
    for (name, a), b in zip(loaded.named_parameters(), expected.parameters(), strict=True):
        assert (a - b).abs().max() < 1e-4, name
    for kind, folder in (transformers.Trainer, ours), (Trainer, theirs):
        resumed = trainer(kind, tmp_path / "resumed", settings)
        resumed.train(resume_from_checkpoint=str(folder))
        assert farthest(losses(resumed), losses(whole)) < 1e-6


def test_the_best_model_is_loaded_at_the_end(tmp_path):
    settings = {
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "save_total_limit": 1,
        "num_train_epochs": 3,
    }
    cpu, ours = both(tmp_path, settings, eval_dataset=rows(17, seed=2))
    assert cpu.state.best_global_step == ours.state.best_global_step
    assert abs(cpu.evaluate()["eval_loss"] - ours.evaluate()["eval_loss"]) < 1e-6


def test_tied_weights_are_saved_once(tmp_path):
    settings = {**MESHES["fsdp"], "max_steps": 2}
    made = trainer(Trainer, tmp_path, settings, llama(tie_word_embeddings=True))
    made.train()
    made.save_model(str(tmp_path / "saved"))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert torch.equal(loaded.lm_head.weight, made.model.lm_head.weight.cpu())


def test_only_logging_reads_the_loss(tmp_path):
    def reads(every):
        made = trainer(Trainer, tmp_path, {"logging_steps": every, "max_steps": 12})
        before = spmdx.debug.counters()["implicit_syncs"]
        made.train()
        return spmdx.debug.counters()["implicit_syncs"] - before

    # Loss and norm of a log are read at once. The model reads something of its own in each step.
    assert reads(1) - reads(12) == 11


def test_a_loss_that_is_not_finite_is_left_out_as_on_the_cpu(tmp_path):
    def spoilt(outputs, labels, num_items_in_batch=None):
        mean = torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())
        return mean * torch.where(labels[0, 0] % 3 == 0, float("nan"), 1.0)

    settings = {"max_steps": 8, "learning_rate": 0.0, "logging_steps": 4, "max_grad_norm": 0.0}

    def train(kind, **more):
        frozen = llama().requires_grad_(False)
        frozen.lm_head.weight.requires_grad_(True)
        made = trainer(kind, tmp_path, {**settings, **more}, frozen, compute_loss_func=spoilt)
        made.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0)
        made.train()
        return losses(made)

    assert farthest(train(transformers.Trainer), train(Trainer)) < 1e-6
    assert any(map(math.isnan, train(Trainer, logging_nan_inf_filter=False)))


class Mine(TrainerMixin, transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = 2 * outputs.loss
        return (loss, outputs) if return_outputs else loss


def test_a_trainer_of_ones_own_is_mixed_in(tmp_path):
    made = trainer(Mine, tmp_path, {"max_steps": 2})
    made.train()
    assert made.model.lm_head.weight.device.type == "spmdx"
    assert 7 < losses(made)[0] < 11  # twice log(96)


def test_seq2seq_generates(tmp_path):
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0,
    )  # fmt: skip
    weights = transformers.T5ForConditionalGeneration(config).state_dict()
    found = []
    for kind in transformers.Seq2SeqTrainer, Seq2SeqTrainer:
        model = transformers.T5ForConditionalGeneration(config)
        model.load_state_dict(weights)
        args = transformers.Seq2SeqTrainingArguments(
            output_dir=str(tmp_path), use_cpu=kind is transformers.Seq2SeqTrainer, report_to=[],
            predict_with_generate=True, generation_max_length=5, disable_tqdm=True,
        )  # fmt: skip
        made = kind(model=model, args=args, eval_dataset=rows(8, seed=5))
        found.append(made.predict(rows(8, seed=5)))
    assert (found[0].predictions == found[1].predictions).all()
    assert abs(found[0].metrics["test_loss"] - found[1].metrics["test_loss"]) < 1e-6


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"use_cpu": True}, "use_cpu is True"),
        ({"fsdp": True, "fsdp_config": {"cpu_offload": True}}, "cpu_offload"),
        ({"fsdp": True, "fsdp_config": {"xla": True}}, "'xla'"),
        ({"fsdp": True, "fsdp_config": {"cpu_ram_efficient_loading": True}}, "cpu_ram_efficient"),
        ({"parallelism_config": ParallelismConfig(tp_size=3)}, "tp_size=3. Expected 8"),
        ({"parallelism_config": ParallelismConfig(cp_size=8)}, "cp_size is 8"),
        ({"accelerator_config": {"dispatch_batches": True}}, "dispatch_batches is True"),
        ({"torch_compile": True}, "dynamo_backend is 'inductor'"),
    ],
    ids=str,
)
def test_what_is_not_done_is_named(settings, said, tmp_path):
    with pytest.raises(spmdx.ShardingError, match=said):
        trainer(Trainer, tmp_path, settings)


def test_a_class_of_layers_that_the_model_has_not_is_named(tmp_path):
    config = {"transformer_layer_cls_to_wrap": ["LlamaBlock"]}
    made = trainer(Trainer, tmp_path, {"fsdp": True, "fsdp_config": config})
    with pytest.raises(spmdx.ShardingError, match="'LlamaBlock'.*LlamaDecoderLayer"):
        made.train()


def test_what_has_no_effect_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="ddp_bucket_cap_mb has no effect"):
        trainer(Trainer, tmp_path, {"ddp_bucket_cap_mb": 25})
