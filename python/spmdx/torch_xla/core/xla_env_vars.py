# SPDX-License-Identifier: Apache-2.0
"""torch_xla.core.xla_env_vars: the names of settings in the environment that mean something."""

PJRT_DEVICE = "PJRT_DEVICE"
CPU_NUM_DEVICES = "CPU_NUM_DEVICES"
XLA_USE_SPMD = "XLA_USE_SPMD"
