# SPDX-License-Identifier: Apache-2.0
"""What of the outcome of a way a program can tell, and where two outcomes differ."""

import math
import re

import torch
from hardware import ON_GPU
from spmdx._annotate.tensor import plain_class


def plain(text):
    """An error's or a tensor's text without what names the device."""
    text = re.sub(r"^\S+\.py:\d+: (aten\.\S+: )?", "", text)
    text = text.replace("spmdxFloatType", "torch.FloatTensor").replace("torch.spmdx.", "torch.")
    text = re.sub(r"Sharded(Tensor|Parameter)", r"\1", re.sub(r",?\s*device='spmdx:0'", "", text))
    return re.sub(r"\s+", " ", text.replace("spmdx:0", "cpu").replace("spmdx", "cpu"))[:150]


def facts(value, here, device=True):
    """All that a program can tell of a result, in plain values."""
    if isinstance(value, torch.Tensor):
        kind = plain_class(type(value)), value.dtype, tuple(value.shape), value.stride()
        where = ("here" if value.device.type == here else value.device.type) if device else ""
        return *kind, value.requires_grad, value.is_leaf, where, value.detach().cpu().tolist()
    if isinstance(value, dict):
        return {key: facts(held, here, device) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [facts(held, here, device) for held in value]
    if isinstance(value, torch.device):
        return "here" if value.type == here else value.type
    if isinstance(value, type):
        return plain_class(value)
    return plain(value) if isinstance(value, str) else value


def outcome(act, here, device=True):
    """What it gives, or the error in its place."""
    try:
        return facts(act(), here, device)
    except Exception as error:  # compared with that of the CPU
        return type(error), plain(str(error))


NEAR = 2e-3 if ON_GPU else 2e-5


def differs(got, wanted, at=""):
    """Where two outcomes differ, in words; empty where they do not."""
    if isinstance(wanted, float) and isinstance(got, float):
        near = math.isclose(got, wanted, rel_tol=NEAR, abs_tol=NEAR)
        return "" if near or got != got and wanted != wanted else f"{at}: {got} instead of {wanted}"
    if isinstance(wanted, dict) and isinstance(got, dict) and got.keys() == wanted.keys():
        return next(filter(None, (differs(got[k], wanted[k], f"{at}.{k}") for k in wanted)), "")
    if isinstance(wanted, list | tuple) and type(got) is type(wanted) and len(got) == len(wanted):
        pairs = enumerate(zip(got, wanted, strict=True))
        return next(filter(None, (differs(a, b, f"{at}.{i}") for i, (a, b) in pairs)), "")
    same = type(got) is type(wanted) and got == wanted
    return "" if same else f"{at}: {got} instead of {wanted}"[:600]
