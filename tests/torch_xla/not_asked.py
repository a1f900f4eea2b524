# SPDX-License-Identifier: Apache-2.0
"""Tests of PyTorch/XLA that are not asked for, each with its reason; and how others are run."""

NOT_ASKED: dict[str, str] = {}

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
# Written for one CPU device: what they compare with names it.
ON_ONE_DEVICE: set[str] = set()
