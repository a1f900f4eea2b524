# SPDX-License-Identifier: Apache-2.0
"""The classes that tracers see: annotated tensors have theirs, and are handled as plain ones.

Dynamo has variables of their own for tensors of subclasses. It makes some results with these as
well, those that are traced by no call: comparisons, and the rows of a tensor. It knows no class for
the former, and takes that of the tensor for the latter. What traces single ops leaves those with
arguments of other classes to the classes.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch

from spmdx._annotate.tensor import ShardedTensor
from spmdx._base.own_devices import NAMES


def teach_results(builder: Any) -> None:
    """Results without a class get the variables of plain tensors."""
    construct, of_subclass = builder.construct_tensor_variable, builder.TensorWithTFOverrideVariable
    plain = builder.TensorVariable

    @functools.wraps(construct)
    def constructed(kind, tx, proxy, example, subclass, options):
        if kind is of_subclass and subclass is None and example.device.type in NAMES:
            kind = plain
        return construct(kind, tx, proxy, example, subclass, options)

    builder.construct_tensor_variable = constructed


def _of_annotated(variable: Any) -> bool:
    return issubclass(variable.class_type, ShardedTensor)


def teach_variables(module: Any) -> None:
    """Rows are plain, attributes those of a plain tensor; what is written to keeps its class."""
    of_subclass, plain = module.TensorWithTFOverrideVariable, module.TensorVariable
    unpack, synchronize = of_subclass.unpack_var_sequence, of_subclass.synchronize_attributes
    # PyTorch 2.14 gives the second name to what has the first one before.
    getter = "var_getattr" if hasattr(of_subclass, "var_getattr") else "tp_getattro_impl"
    get, known = getattr(of_subclass, getter), {*module.banned_attrs, "__class__"}

    @functools.wraps(unpack)
    def unpacked(self, *args, **kwargs):
        return unpack(plain(**vars(self)) if _of_annotated(self) else self, *args, **kwargs)

    @functools.wraps(get)
    def attribute(self, tx, name):
        as_plain = name in known and _of_annotated(self)
        return (getattr(plain, getter) if as_plain else get)(self, tx, name)

    @functools.wraps(synchronize)
    def synchronized(self, *args, **kwargs):
        before = self.class_type
        synchronize(self, *args, **kwargs)
        if issubclass(before, ShardedTensor):  # the tensor that stands for it has none
            self.class_type = before

    setattr(of_subclass, getter, attribute)
    of_subclass.unpack_var_sequence = unpacked
    of_subclass.synchronize_attributes = synchronized


def _dispatches_as_plain(cls: type) -> bool:
    plain = torch.Tensor.__torch_dispatch__
    return issubclass(cls, ShardedTensor) and cls.__torch_dispatch__ is plain


class _Handled(tuple):
    """Classes of tensors, and those of annotated ones, which dispatch as they do."""

    def __contains__(self, cls: Any) -> bool:
        return super().__contains__(cls) or _dispatches_as_plain(cls)


def teach_handled(module: Any) -> None:
    """What traces ops, and a check of custom ops, refuse classes that they do not know."""
    module.HANDLED_TYPES = _Handled(module.HANDLED_TYPES)


def teach_fake_mode(module: Any) -> None:
    """The mode of fake tensors leaves ops with other classes to those. Parameters it takes."""
    has_others = module._check_for_subclass

    @functools.wraps(has_others)
    def has_subclass(arguments: Sequence[object]) -> bool:
        return has_others(arguments) and has_others(
            [x for x in arguments if not _dispatches_as_plain(type(x))]
        )

    module._check_for_subclass = has_subclass
