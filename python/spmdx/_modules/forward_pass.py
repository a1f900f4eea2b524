# SPDX-License-Identifier: Apache-2.0
"""What fully_shard does around a module's forward pass: dtypes, gathered parameters, batches."""

import dataclasses
from typing import Any

import torch
from torch.utils._pytree import tree_map

import spmdx._C as _C
from spmdx._annotate.annotation import annotate, annotation_of, handle_for
from spmdx._annotate.mesh import Mesh
from spmdx._annotate.spec import entry_of
from spmdx._modules.fsdp_options import Precision
from spmdx._modules.marking import beside, seen
from spmdx.errors import naming


@dataclasses.dataclass
class Around:
    """The hooks of one module and its own parameters; they go with it into copies and pickles.

    Attributes:
        names: of the parameters that are replaced during the forward pass.
        precision: the dtypes.
        gathered: the axis along which parameters are gathered before, and kept for the backward
            pass; None leaves that to the plan.
        batch: mesh and axes that cut dim 0 of the arguments, where these are to be marked.
        part: whether the module is a part of the one on which fully_shard was called. Its hooks do
            something where it is called by itself, as activation checkpoints do.
    """

    names: tuple[str, ...]
    precision: Precision
    gathered: str | None
    batch: tuple[Mesh, tuple[str, ...]] | None = None
    part: bool = False
    _kept: list[dict[str, torch.Tensor]] = dataclasses.field(default_factory=list)

    def put_on(self, module: torch.nn.Module) -> None:
        module.register_forward_pre_hook(self.before, with_kwargs=True)
        module.register_forward_hook(self.after, always_call=True)

    def parted(self, path: str) -> "Around":
        """The hooks of the module at ``path`` within; what one has replaced, others leave alone."""
        prefix = f"{path}."
        names = (name.removeprefix(prefix) for name in self.names if name.startswith(prefix))
        own = Precision(self.precision.parameters, self.precision.reduced, None, False)
        return Around(tuple(names), own, self.gathered, None, True, self._kept)

    def before(self, module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Marks and casts the arguments, and puts what is computed with in place of parameters."""
        if self.batch is not None:
            with naming("fully_shard"):
                tree_map(self._mark, (args, kwargs))
        dtype = self.precision.parameters
        if dtype is not None and self.precision.casts_inputs:
            args, kwargs = tree_map(lambda x: cast(x, dtype), (args, kwargs))
        kept: dict[str, Any] = {}
        made: dict[int, torch.Tensor] = {}
        for name in () if self._kept else self.names:  # unless they are replaced already
            home, leaf = _home(module, name)
            parameter = kept[name] = home._parameters[leaf]
            if id(parameter) not in made:
                made[id(parameter)] = self._used(parameter)
            _put(home, leaf, made[id(parameter)])
        self._kept.append(kept)
        return args, kwargs

    def after(self, module: torch.nn.Module, args: Any, output: Any) -> Any:
        """Puts the parameters back, and casts what is returned."""
        for name, parameter in self._kept.pop().items():
            _put(*_home(module, name), parameter)
        dtype = self.precision.output
        return output if dtype is None else tree_map(lambda x: cast(x, dtype), output)

    def _used(self, parameter: Any) -> torch.Tensor:
        dtype = self.precision.parameters or parameter.dtype
        return _Used.apply(parameter, dtype, self.precision.reduced, self.gathered)

    def _mark(self, argument: Any) -> None:
        if self.batch is None or not isinstance(argument, torch.Tensor) or not argument.dim():
            return
        if _C.is_lazy(argument) and annotation_of(argument) is None:
            mesh, axes = self.batch
            annotate(argument, handle_for(argument, mesh, (axes, ...)))


class _Used(torch.autograd.Function):
    """A parameter as the forward pass computes with it; its gradient gets the dtype it had."""

    @staticmethod
    def forward(
        ctx: Any,
        parameter: torch.Tensor,
        dtype: torch.dtype,
        reduced: torch.dtype | None,
        gathered: str | None,
    ) -> torch.Tensor:
        sharding = annotation_of(parameter)
        ctx.dtype, ctx.reduced = parameter.dtype, reduced
        ctx.lies = None
        used = seen(parameter) if dtype == parameter.dtype else parameter.to(dtype)
        if gathered is not None and sharding is not None:
            ctx.lies = sharding._handle  # of the gradient: it is summed to where it is kept
            rest = tuple(map(entry_of, beside(parameter, sharding.mesh, gathered)))
            annotate(used, handle_for(used, sharding.mesh, rest))
        return used

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        found = gradient if ctx.reduced is None else gradient.to(ctx.reduced)
        if ctx.lies is not None:
            found = found.clone() if found is gradient else found
            annotate(found, ctx.lies)
        return found.to(ctx.dtype), None, None, None


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """Floating tensors in ``dtype``, all else as it is."""
    if dtype is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.to(dtype)


def _home(module: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf


def _put(home: torch.nn.Module, leaf: str, tensor: Any) -> None:
    home._parameters[leaf] = tensor
    names = getattr(home, "_flat_weights_names", None)  # recurrent layers list them besides
    if isinstance(home, torch.nn.RNNBase) and names and leaf in names:
        home._flat_weights[names.index(leaf)] = tensor
