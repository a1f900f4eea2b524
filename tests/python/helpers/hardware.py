# SPDX-License-Identifier: Apache-2.0
"""The hardware below the devices of a test run: a GPU, if SPMDX_DEVICE_TYPE says so, or the CPU."""

import os

import torch

ON_GPU = os.environ.get("SPMDX_DEVICE_TYPE", "").strip().lower() == "cuda"
WRONG_INDICES = "a wrong index is an assertion of the GPU, which ends the process's use of it"


def assert_same(got, want):
    """Equal bits; on a GPU, whose kernels round elsewhere than the CPU's, equal to rounding."""
    torch.testing.assert_close(got, want, **({} if ON_GPU else {"rtol": 0, "atol": 0}))
