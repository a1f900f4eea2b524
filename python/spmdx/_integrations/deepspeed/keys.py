# SPDX-License-Identifier: Apache-2.0
"""The keys of DeepSpeed's configs: what each means here."""

# How collectives are bundled and timed: the planner decides it, results are the same.
BY_PLANNER = frozenset(
    {
        "allgather_bucket_size",
        "allgather_partitions",
        "contiguous_gradients",
        "disable_allgather",
        "ignore_unused_parameters",
        "overlap_comm",
        "reduce_bucket_size",
        "reduce_scatter",
        "round_robin_gradients",
        "stage3_max_live_parameters",
        "stage3_max_reuse_distance",
        "stage3_param_persistence_threshold",
        "stage3_prefetch_bucket_size",
        "sub_group_size",
    }
)
KNOWN = frozenset(
    {
        "bf16",
        "dataloader_drop_last",
        "disable_allgather",
        "fp16",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "optimizer",
        "scheduler",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "zero_allow_untested_optimizer",
        "zero_optimization",
    }
)
ZERO = BY_PLANNER | {"offload_optimizer", "stage"}
# Of ``offload_optimizer``; how copies are made has no say in results.
OFFLOAD = frozenset({"buffer_count", "device", "fast_init", "pin_memory", "ratio"})
_ON_DEVICES = "Tensors stay on the devices. Cut them by more devices."
_OWN_LINE = "Write that in the program."
# Keys that are taken where they say "off", and what to do where they do not.
ELSEWHERE = {
    "activation_checkpointing": "Call torch.utils.checkpoint in the model.",
    "aio": _ON_DEVICES,
    "amp": 'Write {"bf16": {"enabled": true}}.',
    "auto_cast": "Cast inputs in the program.",
    "autotuning": "The planner chooses by cost: docs/planner.md.",
    "bfloat16": 'Write "bf16".',
    "checkpoint": "spmdx.checkpoint says how: docs/checkpoints.md.",
    "comms_logger": "Print spmdx.explain().",
    "communication_data_type": "Sums are in the dtype of what is summed.",
    "compression_training": _OWN_LINE,
    "csv_monitor": _OWN_LINE,
    "curriculum_learning": _OWN_LINE,
    "data_efficiency": _OWN_LINE,
    "data_types": "Gradients add up in float32.",
    "dump_state": _OWN_LINE,
    "elastic_checkpoint": "Checkpoints load on any number of devices as they are.",
    "elasticity": "Start again with other processes: checkpoints load on any number of devices.",
    "eigenvalue": _OWN_LINE,
    "flops_profiler": "Print spmdx.explain().",
    "fp16_master_weights_and_grads": "Master weights are float32.",
    "fp32_allreduce": "Sums are in the dtype of what is summed.",
    "gradient_predivide_factor": "Gradients are means already.",
    "hybrid_engine": _OWN_LINE,
    "load_from_fp32_weights": "Master weights are loaded as they were saved.",
    "memory_breakdown": "Call spmdx.runtime.memory_info().",
    "nvme_path": "State lies on devices or in the memory of hosts.",
    "offload_param": _ON_DEVICES,
    "pipeline": "Leave it out: a batch and its layers are cut by annotations.",
    "prescale_gradients": "Gradients are means already.",
    "progressive_layer_drop": _OWN_LINE,
    "quantize_training": _OWN_LINE,
    "sequence_parallel_size": "Mark the dim of the sequence: spmdx.mark_sharding.",
    "sparse_attention": _OWN_LINE,
    "sparse_gradients": "Gradients are dense.",
    "stage3_gather_16bit_weights_on_model_save": "save_safetensors writes whole tensors.",
    "steps_per_print": "Print the loss in the program.",
    "tensor_parallel": 'Call spmdx.nn.shard_module(model, mesh, "auto") first.',
    "tensorboard": _OWN_LINE,
    "torch_autocast": 'Write {"bf16": {"enabled": true}}.',
    "use_all_reduce_for_fetch_params": "The planner chooses collectives by cost.",
    "wall_clock_breakdown": "Print spmdx.explain().",
    "wandb": _OWN_LINE,
    "zero_force_ds_cpu_optimizer": _ON_DEVICES,
    "zero_hpz_partition_size": "Name the axis of a mesh within a machine: initialize(axis=...).",
    "zero_quantized_gradients": "Messages have the dtype of tensors.",
    "zero_quantized_nontrainable_weights": "Messages have the dtype of tensors.",
    "zero_quantized_weights": "Messages have the dtype of tensors.",
}
