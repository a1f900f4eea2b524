# SPDX-License-Identifier: Apache-2.0
"""Tests of PyTorch/XLA that are not asked for, each with its reason; and how others are run."""

HLO = "asks for the text of an HLO program"
XLA = "asks for internals of XLA"
TPU = "asks for the hardware of TPUs"
AUTO = "asks for shardings that nobody wrote (auto-sharding)"
_SHARDING = "BasicXlaShardingTest."

NOT_ASKED: dict[str, str] = {
    **{
        _SHARDING + name: HLO
        for name in (
            "test_inplace_add_with_sharding",
            "test_xla_sharded_hlo_dump",
            "test_2d_tensor_3d_mesh",
            "test_mark_sharding_ir",
            "test_mark_sharding_autograd",
            "test_mark_sharding_aot_compile",
            "test_mark_sharding_ir_with_multiple_output",
            "test_backward_optimization_barrier",
            "test_mark_manual_sharding",
            "test_spmd_full_to_shard_shape",
            "test_spmd_shard_to_full_shape",
            "test_annotate_custom_sharding",
            "test_spmd_reduce_scatter",
            "test_spmd_reduce_scatter_canonical_index",
            "test_spmd_all_reduce",
            "test_spmd_all_reduce_scale",
        )
    },
    _SHARDING + "test_shard_hashing": XLA + ": hashes of graphs",
    _SHARDING + "test_fallback": XLA + ": which op it computes on the host",
    _SHARDING + "test_hybrid_mesh": TPU + ": their coordinates",
    _SHARDING + "test_hybrid_mesh_shape": TPU,
    "FSDPv2Test.test_fsdp_v2_basic": HLO,
    "FSDPv2Test.test_fsdp_v2_multi_slice": TPU,
    "FSDPv2Test.test_fsdp_v2_multi_slice_output_correctness": TPU,
    "XlaShardingHloTest.test_xla_sharded_hlo_dump_post_optimizations": HLO,
    "SpmdGraphDumpTest.test_dump_with_output_sharding": HLO,
    "TestSPMDLoweringContext.test_basic": HLO,
    "TestSPMDLoweringContext.test_device_parameter_id_tensor_mapping": XLA + ": parameters of HLO",
    "XlaAutoShardingTest.test_auto_sharding_hashing": AUTO,
    "XlaAutoShardingTest.test_matmul": AUTO,
    "XlaAutoShardingTest.test_simple_linear_training": AUTO,
    "DynamoSpmdInferenceTest.test_dynamo_input_sharding_threashold": "asks for a call that crashes",
}

# Programs' own arguments, where they would train for an hour on a processor.
ARGUMENTS = {
    "test_train_spmd_linear_model.py": ["--input_dim", "512", "--train_dataset_len", "1024"],
}
# Scripts that are no tests, and need what is not here.
NO_TESTS = {
    "args_parse.py",
    "test_sharding_strategies.py",
    "test_train_spmd_imagenet.py",
    "test_xla_sharding_base.py",
}
# By test, the number of devices that upstream wrote it for, where what it compares with fits no
# other: names of all devices, their number, or a grid of as many rows as columns.
DEVICES: dict[str, int] = {
    **{
        "DebuggingSpmdTest." + name: 1
        for name in (
            "test_debugging_spmd_single_host_tiled_cpu",
            "test_single_host_partial_replication_cpu",
            "test_single_host_replicated_cpu",
            "test_multi_host_replicated_cpu",
        )
    },
    "BasicRuntimeAPITest.test_global_runtime_device_count": 1,
    "BasicRuntimeAPITest.test_addressable_runtime_device_count": 1,
    "DTensorRedistributeTest.test_device_mesh_dimensions": 4,
    "DTensorRedistributeTest.test_async_redistribute": 4,
}
