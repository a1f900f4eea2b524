# SPDX-License-Identifier: Apache-2.0
"""Objects at which a walk ends: what cannot change, or is watched as a whole."""

import _thread
import collections
import datetime
import decimal
import pathlib
import re
import types

import numpy
import torch
from torch import nn

COMPARED = 1024  # elements of a tensor of the CPU up to which its values are watched
# What cannot change, or whose changes change no result: exactly these classes, and subclasses of
# the second.
INERT_EXACTLY = {
    *(int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented)),
    *(range, slice, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    *(torch.finfo, torch.iinfo, types.CodeType, property, types.GetSetDescriptorType),
    *(types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, types.GenericAlias, _thread.LockType),
    *(_thread.RLock, type(int | str)),
}
INERT = (
    *(re.Pattern, pathlib.PurePath, torch.fx.Graph),
    *(types.DynamicClassAttribute, numpy.generic, numpy.dtype, torch._ops.OpOverload),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal),
    *(torch._ops.OpOverloadPacket, torch._ops._OpNamespace, torch._ops._Ops),
)
# Classes of C whose contents a walk knows, as bases of others.
KNOWN_BASES = {
    *(object, dict, list, set, tuple, frozenset, int, float, complex, str, bytes, bool),
    *(collections.deque, collections.OrderedDict, collections.defaultdict, types.SimpleNamespace),
}


def has_few_values(tensor: torch.Tensor) -> bool:
    """Whether they are compared one by one: writes through numpy's arrays count no version up."""
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout != torch.strided:
        return False
    is_plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return is_plain and 0 < tensor.numel() <= COMPARED
