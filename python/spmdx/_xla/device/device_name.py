# SPDX-License-Identifier: Apache-2.0
"""The device string "xla": programs write it, and tensors of the device say it of themselves.

PyTorch has a device type of this name, which no other device can bear, and for which there are no
kernels here. So functions that take a device take "spmdx" for it, and the attribute ``device``
says "xla". Below Python nothing is renamed.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from spmdx import runtime
from spmdx._annotate import sharding
from spmdx._base.after_import import after_import
from spmdx._base.own_devices import NAMES
from spmdx._base.traced import as_in_torch
from spmdx._xla.device import uploads

XLA = torch.device("xla", 0)
_SPMDX = torch.device("spmdx", 0)
_device_of: Any = torch._C.TensorBase.device
# Functions of torch that open a guard of their device, which PyTorch lacks for "xla".
_FUNCTIONS = (
    "scalar_tensor",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "randn_like",
    "randint_like",
    "tril_indices",
    "triu_indices",
)
_OF_VALUES = ("tensor", "as_tensor", "asarray")  # as these; what they make comes up to the device
# Functions of torch that take the name of a kind of device first.
_OF_KINDS = (
    "is_autocast_enabled",
    "set_autocast_enabled",
    "get_autocast_dtype",
    "set_autocast_dtype",
)
_DEVICES = {"device", "device_for_backend_keys"}
_library = torch.library.Library("aten", "IMPL")  # alive as long as its kernels are wanted


@as_in_torch
def real(place: Any) -> Any:
    """``place``, or "spmdx" where it is the device "xla"."""
    if isinstance(place, str) and (place == "xla" or place.startswith("xla:")):
        place = torch.device(place)
    if isinstance(place, torch.device) and place.type == "xla":
        if place.index:
            raise RuntimeError(
                f"there is one logical device, xla:0, not {place}. Expected it. The devices of a "
                "mesh lie below it: call torch_xla.distributed.spmd.mark_sharding."
            )
        return _SPMDX
    return place


@as_in_torch
def _device(self: torch.Tensor) -> torch.device:
    place = _device_of.__get__(self)
    return XLA if place.type == "spmdx" else place


@as_in_torch
def _is_xla(self: torch.Tensor) -> bool:
    return _device_of.__get__(self).type == "spmdx"


def _translating(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` that takes "spmdx" wherever it is given "xla"."""

    @functools.wraps(function)
    @as_in_torch
    def translated(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() & _DEVICES:
            kwargs[name] = real(kwargs[name])
        return function(*[real(a) for a in args], **kwargs)

    return translated


def _by_default(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` whose tensors are on the device where a program has made "xla" the default.

    PyTorch adds a default device to calls of its own functions, below those that stand here.
    """

    @functools.wraps(function)
    @as_in_torch
    def made(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return function(*args, **kwargs)
        modes = torch.overrides._get_current_function_mode_stack()
        places = [mode.device for mode in modes if type(mode).__name__ == "DeviceContext"]
        place = places[-1] if places else None
        if kwargs.get("device") is None and place is not None and place.type in NAMES:
            kwargs["device"] = place
        return function(*args, **kwargs)

    return made


def _coming_up(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` whose tensors on the device are noted as what came up."""

    @functools.wraps(function)
    @as_in_torch
    def made(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if not torch.compiler.is_dynamo_compiling():
            uploads.note(result)
        return result

    return made


def _of_kind(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` that takes the kind "spmdx" for "xla"."""

    @functools.wraps(function)
    @as_in_torch
    def translated(*args: Any) -> Any:
        return function(*["spmdx" if a == "xla" else a for a in args])

    return translated


def _by_index(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A loss whose target may be indices of classes in a floating dtype, as XLA takes them."""

    @functools.wraps(loss)
    @as_in_torch
    def computed(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        if target.is_floating_point() and target.dim() < input.dim() and _is_xla(target):
            target = target.long()
        return loss(input, target, *args, **kwargs)

    return computed


def _moving(to: Callable[..., Any]) -> Callable[..., Any]:
    """``Tensor.to`` that notes what goes up to the device and comes down from it."""

    @functools.wraps(to)
    @as_in_torch
    def moved(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = real(kwargs["device"])
        args = tuple(real(a) for a in args)
        if torch.compiler.is_dynamo_compiling():
            return to(self, *args, **kwargs)
        return uploads.noted(self, lambda: to(self, *args, **kwargs))

    return moved


def _copying(cpu: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(cpu)
    @as_in_torch
    def copied(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return cpu(self, *args, **kwargs)
        return uploads.noted(self, lambda: cpu(self, *args, **kwargs))

    return copied


def _cloning(clone: Callable[..., Any]) -> Callable[..., Any]:
    """``Tensor.clone``: a copy of an annotated tensor is annotated, as torch_xla's copies are."""

    @functools.wraps(clone)
    @as_in_torch
    def cloned(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = clone(self, *args, **kwargs)
        if torch.compiler.is_dynamo_compiling() or not isinstance(self, sharding.ShardedTensor):
            return result
        found = sharding.annotation_of(self)
        return result if found is None else sharding.annotate(result, found._handle)

    return cloned


def _give_kernels() -> None:
    """What is made on "xla" by PyTorch's own code lies on the device."""
    empty, strided = torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default

    def made(size: Any, **options: Any) -> torch.Tensor:
        return empty(size, **{**options, "device": real(options["device"])})

    def made_strided(size: Any, stride: Any, **options: Any) -> torch.Tensor:
        return strided(size, stride, **{**options, "device": real(options["device"])})

    _library.impl("empty.memory_format", made, "XLA")
    _library.impl("empty_strided", made_strided, "XLA")


def _in_autocast() -> None:
    """``torch.autocast("xla")`` is that of the device."""
    begin = torch.autocast.__init__

    @functools.wraps(begin)
    def begun(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        name = str(device_type)
        is_ours = name == "xla" or name.startswith("xla:")
        if is_ours and dtype is None:
            dtype = torch.get_autocast_dtype("xla")
        begin(self, "spmdx" if is_ours else device_type, dtype, *args, **kwargs)

    setattr(torch.autocast, "__init__", begun)  # noqa: B010
    chosen, choose = torch.get_autocast_dtype, torch.set_autocast_dtype
    wanted = threading.local()  # what the program has set, as PyTorch keeps it by thread

    @functools.wraps(chosen)
    @as_in_torch
    def dtype_of(kind: str) -> torch.dtype:
        if kind != "xla" or torch.is_autocast_enabled("spmdx"):
            return chosen(kind)
        return getattr(wanted, "dtype", torch.bfloat16)  # XLA's own, where others have float16

    @functools.wraps(choose)
    @as_in_torch
    def set_dtype(kind: str, dtype: torch.dtype) -> None:
        if kind == "xla":
            wanted.dtype = dtype
        choose(kind, dtype)

    setattr(torch, "get_autocast_dtype", dtype_of)  # noqa: B010
    setattr(torch, "set_autocast_dtype", set_dtype)  # noqa: B010


def _teach_fakes(module: Any) -> None:
    """Tensors without elements, which tracers make, are of the device: PyTorch guards theirs."""
    make = module.FakeTensor.__new__

    @functools.wraps(make)
    def made(cls: Any, fake_mode: Any, elem: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        return make(cls, fake_mode, elem, real(device), *args, **kwargs)

    module.FakeTensor.__new__ = staticmethod(made)


@functools.cache
def install() -> None:
    """Teaches PyTorch the name; once."""
    runtime.use_spmd()
    NAMES.add("xla")
    _give_kernels()
    tensor: Any = torch.Tensor  # whose attributes are replaced
    tensor.to, tensor.cpu = _moving(tensor.to), _copying(tensor.cpu)
    tensor.clone = _cloning(tensor.clone)
    for name in ("new_tensor", "new_empty", "new_zeros", "new_ones", "new_full"):
        setattr(tensor, name, _translating(getattr(tensor, name)))
    for name in ("_make_wrapper_subclass", "_make_subclass"):  # of tensors that stand for others
        setattr(tensor, name, staticmethod(_translating(getattr(tensor, name))))
    for name in _FUNCTIONS:
        setattr(torch, name, _translating(getattr(torch, name)))
    for name in _OF_VALUES:
        setattr(torch, name, _coming_up(_by_default(_translating(getattr(torch, name)))))
    for name in _OF_KINDS:
        setattr(torch, name, _of_kind(getattr(torch, name)))
    for name in ("cross_entropy", "nll_loss"):
        setattr(F, name, _by_index(getattr(F, name)))
    _in_autocast()
    after_import("torch._subclasses.fake_tensor", _teach_fakes)
    tensor.device, tensor.is_xla = property(_device), property(_is_xla)
    torch._register_device_module("xla", torch.get_device_module("spmdx"))
