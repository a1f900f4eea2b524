# SPDX-License-Identifier: Apache-2.0
"""ZeRO: what is cut along an axis, of parameters, their gradients and the state of optimizers."""

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from spmdx._annotate.annotation import annotate, annotation_of, handle_for, on_stage_of
from spmdx._annotate.mesh import Mesh
from spmdx._base.own_devices import NAMES
from spmdx._modules.marking import cut_along, require_on_device
from spmdx.errors import ShardingError, warn

STAGES = (1, 2, 3)


def state_like_parameters(
    optimizer: torch.optim.Optimizer,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What an optimizer holds of parameters and has their shape, on the device: with each, them."""
    for parameter, state in optimizer.state.items():
        for value in state.values():
            fits = isinstance(value, torch.Tensor) and value.shape == parameter.shape
            if fits and value.device.type in NAMES:
                yield parameter, value


class Zero:
    """Marks parameters, gradients and the state of optimizers.

    Attributes:
        stage: 0: all is whole. 1: the state of optimizers and master weights are cut. 2:
            gradients, too. 3: parameters, too.
        mesh: the devices.
        axis: the one that cuts, beside those that the program has cut parameters with.
        min_size: of fewer elements a parameter stays whole, with all that belongs to it.
        offload: whether the state of optimizers lies in the memory of hosts between steps.

    Source: ZeRO, arXiv:1910.02054.
    """

    def __init__(
        self,
        stage: int,
        mesh: Mesh,
        axis: str,
        min_size: int = 0,
        offload: bool = False,
        before: "Zero | None" = None,
    ):
        self.stage, self.mesh, self.axis = stage, mesh, axis
        self.min_size, self.offload = min_size, offload
        # Of parameters, what the program has marked them with; `before` was there, and knows it.
        self._own: dict[int, tuple] = {} if before is None else dict(before._own)

    def spec(self, parameter: torch.Tensor, cut: bool) -> tuple:
        """As the program said; where this does not name the axis, ``cut`` by it as well."""
        said = self._own.get(id(parameter), (None,) * parameter.dim())
        if not cut or parameter.numel() < self.min_size:
            return said
        return cut_along(said, parameter.shape, self.mesh, self.axis, uneven=True)

    def mark_parameters(self, parameters: Iterable[torch.Tensor]) -> None:
        for parameter in parameters:
            said = annotation_of(parameter)
            if id(parameter) not in self._own:
                whole = (None,) * parameter.dim()
                self._own[id(parameter)] = whole if said is None else tuple(said.spec)
            self._mark(parameter, self.spec(parameter, self.stage == 3), parameter)

    def mark_master(self, master: torch.Tensor, parameter: torch.Tensor) -> None:
        spec = self.spec(parameter, self.stage >= 1)
        self._mark(master, spec, parameter)
        self._own[id(master)] = spec

    def mark_gradient(self, parameter: torch.Tensor) -> None:
        if self.stage >= 2 and parameter.grad is not None:
            self._mark(parameter.grad, self.spec(parameter, True), parameter)

    def mark_state(self, optimizer: torch.optim.Optimizer, again: bool = False) -> None:
        """What has the parameter's shape; a number, as that of steps, is no one's to cut.

        ``again``: also what is marked.
        """
        for parameter, value in state_like_parameters(optimizer):
            if value.dim() and (again or annotation_of(value) is None):
                offload = self.offload and parameter.numel() >= self.min_size
                self._mark(value, self.spec(parameter, self.stage >= 1), parameter, offload)

    def _mark(
        self, tensor: torch.Tensor, spec: tuple, parameter: torch.Tensor, offload: bool = False
    ) -> None:
        """On the stage of a pipeline that the parameter is on."""
        handle = on_stage_of(parameter, handle_for(tensor, self.mesh, spec))
        annotate(tensor, handle.on_host() if offload else handle)


class _Hooks:
    """What is called around backward passes and steps for one optimizer; ends with :meth:`drop`."""

    def __init__(
        self, zero: Zero, parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer
    ):
        self.zero, self.parameters = zero, parameters
        self._handles: list[Any] = [
            optimizer.register_step_post_hook(lambda of, *_: zero.mark_state(of)),
            optimizer.register_load_state_dict_post_hook(lambda of: zero.mark_state(of, True)),
        ]
        for parameter in parameters if zero.stage >= 2 else ():
            if not parameter.requires_grad:
                continue
            handle = parameter.register_post_accumulate_grad_hook(zero.mark_gradient)
            self._handles.append(handle)

    def drop(self) -> None:
        for handle in self._handles:
            handle.remove()


_hooks: "weakref.WeakKeyDictionary[torch.optim.Optimizer, _Hooks]" = weakref.WeakKeyDictionary()


def zero_as(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    mesh: Mesh,
    axis: str,
    stage: Any,
    min_size: Any,
    offload: Any = False,
) -> None:
    """What :func:`spmdx.nn.zero` does; everything is checked before anything is marked."""
    _require_numbers(stage, min_size, offload)
    named = dict(model.named_parameters())
    require_on_device(named)
    _require_mesh_of(named, mesh)
    held = require_optimizer(optimizer, named)
    if type(optimizer).__module__.split(".")[0] != "torch":
        warn(
            f"zero: {type(optimizer).__name__} is no optimizer of PyTorch. Expected one whose "
            "state is known. Of what it holds, tensors of their parameter's shape are cut; others "
            "stay whole. Mark these by spmdx.mark_sharding."
        )
    known = forget(optimizer)
    same = known is not None and known.zero.mesh == mesh
    zero = Zero(stage, mesh, axis, min_size, offload, known.zero if known and same else None)
    zero.mark_parameters(named.values())
    for parameter in held:
        zero.mark_gradient(parameter)
    zero.mark_state(optimizer, again=True)
    _hooks[optimizer] = _Hooks(zero, held, optimizer)


def forget(optimizer: torch.optim.Optimizer) -> "_Hooks | None":
    """Steps of the optimizer mark nothing from now on; returns what did."""
    known = _hooks.pop(optimizer, None)
    if known is not None:
        known.drop()
    return known


def optimizers_of(parameters: Iterable[torch.Tensor]) -> list[torch.optim.Optimizer]:
    """Those whose steps mark something, and that step on one of these."""
    own = {id(parameter) for parameter in parameters}
    return [o for o, hooks in _hooks.items() if not own.isdisjoint(map(id, hooks.parameters))]


@contextlib.contextmanager
def out_of_force(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[None]:
    """A block in which their steps mark nothing, unless something in it says so."""
    known = {o: hooks for o in optimizers if (hooks := forget(o)) is not None}
    try:
        yield
    finally:
        for optimizer, hooks in known.items():
            forget(optimizer)
            _hooks[optimizer] = _Hooks(hooks.zero, hooks.parameters, optimizer)


def _require_numbers(stage: Any, min_size: Any, offload: Any) -> None:
    if isinstance(stage, bool) or stage not in STAGES:
        raise ShardingError(
            f"the stage is {stage!r}. Expected 1, 2 or 3. Write 1 to cut the optimizer's state."
        )
    if isinstance(min_size, bool) or not isinstance(min_size, int) or min_size < 0:
        raise ShardingError(
            f"min_size is {min_size!r}. Expected a number of elements, at least 0. Leave it out to "
            "cut every parameter."
        )
    if not isinstance(offload, bool):
        raise ShardingError(
            f"offload is {offload!r}. Expected True or False. Write True to keep the optimizer's "
            "state in the memory of hosts."
        )


def _require_mesh_of(named: dict[str, torch.nn.Parameter], mesh: Mesh) -> None:
    for name, parameter in named.items():
        known = annotation_of(parameter)
        if known is not None and known.mesh != mesh:
            raise ShardingError(
                f"{name} is annotated for {known.mesh!r}, and the mesh is {mesh!r}. Expected the "
                "same. Pass the mesh of the parameters, or mark them for this one first."
            )


def require_optimizer(
    optimizer: Any, named: dict[str, torch.nn.Parameter]
) -> list[torch.nn.Parameter]:
    """The parameters that it steps on. Raises ShardingError where they are none of these."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ShardingError(
            f"the optimizer is a {type(optimizer).__name__}. Expected a torch.optim.Optimizer. "
            "Pass the one that steps on the model's parameters."
        )
    own = {id(parameter) for parameter in named.values()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    if not any(id(parameter) in own for parameter in held):
        raise ShardingError(
            "the optimizer holds none of the model's parameters. Expected one that steps on them. "
            'Make it after model.to("spmdx"), with model.parameters().'
        )
    return [parameter for parameter in held if id(parameter) in own]
