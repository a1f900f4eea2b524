# SPDX-License-Identifier: Apache-2.0
"""A profile of all activities has none of the device: it reports no kernels of its own."""

import functools

import torch


def _of_others(supported):
    @functools.wraps(supported)
    def activities():
        return supported() - {torch.profiler.ProfilerActivity.PrivateUse1}

    return activities


def install() -> None:
    """Keeps profiles without a choice of activities what they were; runs once."""
    torch.autograd._supported_activities = _of_others(torch.autograd._supported_activities)
