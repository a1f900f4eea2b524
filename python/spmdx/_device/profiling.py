# SPDX-License-Identifier: Apache-2.0
"""torch.profiler sees steps, plans, ops and collectives, on whichever thread they run."""

import functools
from collections.abc import Callable
from typing import Any

import torch

import spmdx._C as _C


def _of_others(supported):
    @functools.wraps(supported)
    def activities():
        return supported() - {torch.profiler.ProfilerActivity.PrivateUse1}

    return activities


def _told(enable: Callable[..., Any]) -> Callable[..., Any]:
    """``enable``, after the steps that were queued; later ones are told to the profile."""

    @functools.wraps(enable)
    def enabled(*args, **kwargs):
        if _C.in_forked_child():
            enable(*args, **kwargs)
            return
        _C.wait_for_queued()
        enable(*args, **kwargs)
        _C.watch_for_profiler(True)

    return enabled


def _not_told(disable: Callable[..., Any]) -> Callable[..., Any]:
    """``disable``, before which the steps that were queued run to their ends, and are told."""

    @functools.wraps(disable)
    def disabled(*args, **kwargs):
        if not _C.in_forked_child():
            _C.wait_for_queued()
            _C.watch_for_profiler(False)
        return disable(*args, **kwargs)

    return disabled


def install() -> None:
    """Keeps profiles without a choice of activities what they were, and tells them of steps."""
    profiler = torch.autograd.profiler
    torch.autograd._supported_activities = _of_others(torch.autograd._supported_activities)
    profiler._enable_profiler = _told(profiler._enable_profiler)
    profiler._disable_profiler = _not_told(profiler._disable_profiler)
