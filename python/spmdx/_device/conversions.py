# SPDX-License-Identifier: Apache-2.0
"""Parameters stay the objects they are, and annotated, where a module is moved or converted."""

import functools
from typing import Any

import torch
from torch.nn.parameter import is_lazy

import spmdx._C as _C
from spmdx._annotate.classes import plain_class, sharded_class
from spmdx._base.own_devices import NAMES
from spmdx._base.traced import as_in_torch, on_device, untraced
from spmdx.errors import located, warn


@untraced
def keep_annotation(source: torch.Tensor, target: torch.Tensor) -> None:
    """``target`` is annotated as ``source``, whose place it takes, or a warning says why not."""
    if _C.keep_annotation(source, target):
        _take_class(target)
    elif _C.annotation(source) is not None and not _C.is_lazy(target):
        warn(
            "the annotation of a tensor that leaves device 'spmdx' ends there. Expected annotated "
            "tensors to stay on the device. Call spmdx.mark_sharding again once it is back; to "
            "read it, use .cpu() of the tensor, not of the module."
        )


@untraced
def _take_class(tensor: torch.Tensor) -> None:
    tensor.__class__ = (sharded_class if _is_annotated(tensor) else plain_class)(type(tensor))


def _refuse_backward(gradients):
    raise RuntimeError(
        located(
            "backward",
            "a parameter of this graph was moved to or from device 'spmdx' since, so its gradient "
            "would reach nobody. Expected backward before the move. Call backward() first, or run "
            "the forward pass again.",
        )
    )


@untraced
def _become(tensor: torch.Tensor, content: torch.Tensor) -> None:
    """Make ``tensor`` hold ``content`` of another device; graphs keep what they saved."""
    fresh = content.detach().requires_grad_(tensor.requires_grad)
    hooks, late_hooks = tensor._backward_hooks, tensor._post_accumulate_grad_hooks
    in_graphs = tensor.requires_grad and tensor.is_leaf and not is_lazy(tensor)
    if in_graphs and not torch.is_inference_mode_enabled():
        with torch.enable_grad():
            node = torch.autograd.graph.get_gradient_edge(tensor).node
        node.register_prehook(_refuse_backward)  # dies with the node where no graph holds it
    torch._C._swap_tensor_impl(tensor, fresh)
    if hooks is not None:
        tensor._backward_hooks = hooks
    if late_hooks is not None:
        tensor._post_accumulate_grad_hooks = late_hooks
    _take_class(tensor)


class _Keeping:
    """What a module is converted with: the user's function, and what PyTorch would lose.

    Between tensors of one device PyTorch writes ``parameter.data = converted``. Between this
    device and others it would make new Parameters: tied weights come apart, and optimizers made
    before keep the old ones. So here the Parameter itself becomes the converted one.
    """

    @as_in_torch
    def __init__(self, convert):
        functools.update_wrapper(self, convert)
        self._convert = convert
        self._gradients = {}  # converted with their parameters, by id
        self._scripted = False

    def of(self, module: torch.nn.Module) -> "_Keeping":
        """As this, for the tensors of a module.

        TorchScript keeps parameters of its own: the objects seen in Python come and go.
        """
        if not isinstance(module, torch.jit.ScriptModule):
            return self
        scripted = _Keeping(self._convert)
        scripted._scripted = True
        return scripted

    @as_in_torch
    def __call__(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if id(tensor) in self._gradients:
            return tensor
        result = self._convert(tensor, *args, **kwargs)
        if not (isinstance(tensor, torch.Tensor) and isinstance(result, torch.Tensor)):
            return result
        was, is_now = on_device(tensor), on_device(result)
        if result is tensor or not (was or is_now):
            return result
        keep_annotation(tensor, result)
        if was == is_now or self._scripted or not isinstance(tensor, torch.nn.Parameter):
            return result
        self._cross(tensor, result)
        return tensor

    def _cross(self, parameter: torch.nn.Parameter, converted: torch.Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        _become(parameter, converted)
        if gradient is not None:
            _become(gradient, self._convert(gradient))
            parameter.grad = gradient
            self._gradients[id(gradient)] = gradient


def _keep_parameters(apply):
    """``Module._apply`` that keeps Parameters, and lazy modules' buffers uninitialized."""

    @functools.wraps(apply)
    @as_in_torch
    def applied(self, fn, *args, **kwargs):
        lazy_buffers: dict[str, Any] = {
            name: type(b) for name, b in self._buffers.items() if is_lazy(b)
        }
        fn = fn if isinstance(fn, _Keeping) else _Keeping(fn)
        result = apply(self, fn.of(self), *args, **kwargs)
        for name, kind in lazy_buffers.items():
            moved = self._buffers[name]
            if not is_lazy(moved):
                self._buffers[name] = kind(device=moved.device, dtype=moved.dtype)
        return result

    return applied


@untraced
def _is_annotated(tensor: torch.Tensor) -> bool:
    return _C.annotation(tensor) is not None


@as_in_torch
def _tensors(module: torch.nn.Module):
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _keep_names(load):
    """``Module.load_state_dict`` whose tensors are annotated as those they take the place of."""

    @functools.wraps(load)
    @as_in_torch
    def loaded(self, state_dict, strict=True, assign=False):
        before = {}
        if assign or torch.__future__.get_swap_module_params_on_conversion():
            ours = ((name, t) for name, t in _tensors(self) if on_device(t))
            marked = ((name, t) for name, t in ours if _is_annotated(t))
            before = {name: t.detach() for name, t in marked}  # t itself may be swapped
        try:
            return load(self, state_dict, strict, assign)
        finally:
            for name, tensor in _tensors(self) if before else ():
                if name in before:
                    keep_annotation(before[name], tensor)

    return loaded


@untraced
def _annotated_parameter(cls: type, data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    result: torch.Tensor = torch.Tensor._make_subclass(cls, data, requires_grad)
    _C.annotate(result, _C.annotation(result), True)  # a parameter now, if it was data before
    _take_class(result)
    return result


def _of_annotated(make):
    """``Parameter.__new__`` that takes annotated tensors: the result is annotated, too."""

    @functools.wraps(make)
    @as_in_torch
    def made(cls, data=None, requires_grad=True):
        # torch.compile reads this: what is called for tensors of other devices is PyTorch's alone.
        elsewhere = not isinstance(data, torch.Tensor) or data.device.type not in NAMES
        if elsewhere or not _is_annotated(data):
            return make(cls, data, requires_grad)
        return _annotated_parameter(cls, data, requires_grad)

    return staticmethod(made)


def install() -> None:
    """Teach PyTorch's modules and parameters; once."""
    module: Any = torch.nn.Module  # whose methods are replaced
    parameter: Any = torch.nn.Parameter
    module._apply = _keep_parameters(module._apply)
    module.load_state_dict = _keep_names(module.load_state_dict)
    parameter.__new__ = _of_annotated(parameter.__new__)
