# SPDX-License-Identifier: Apache-2.0
"""The config and the engine of DeepSpeed, said with annotations and PyTorch."""
