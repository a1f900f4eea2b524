# SPDX-License-Identifier: Apache-2.0
"""What fully_shard does around a module's forward pass: dtypes, gathered parameters, batches."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import checkpoint
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily
from torch.utils._pytree import tree_map

import spmdx._C as _C
from spmdx._annotate.annotation import annotate, annotation_of, handle_for
from spmdx._annotate.mesh import Mesh
from spmdx._base.entries import entry_of
from spmdx._modules.fsdp_options import Precision
from spmdx._modules.marking import beside, seen
from spmdx.errors import ShardingError, naming

_SELECTIVE = checkpoint._CachingTorchDispatchMode, checkpoint._CachedTorchDispatchMode


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
        replaced = bool(self._kept)
        self._kept.append(kept)
        if not replaced:
            with _unseen():
                self._replace(module, kept)
        return args, kwargs

    def _replace(self, module: torch.nn.Module, kept: dict[str, Any]) -> None:
        made: dict[int, torch.Tensor] = {}
        for name in self.names:
            home, leaf = _home(module, name)
            parameter = home._parameters[leaf]
            if id(parameter) not in made:
                made[id(parameter)] = self._used(parameter)
            kept[name] = parameter
            _put(home, leaf, made[id(parameter)])

    def after(self, module: torch.nn.Module, args: Any, output: Any) -> Any:
        """Puts the parameters back, and casts what is returned."""
        kept = self._kept.pop() if self._kept else {}  # none where a hook before ours has raised
        for name, parameter in kept.items():
            _put(*_home(module, name), parameter)
        dtype = self.precision.output
        return output if dtype is None else tree_map(lambda x: cast(x, dtype), output)

    def _used(self, parameter: Any) -> torch.Tensor:
        dtype, reduced = self.precision.parameters, self.precision.reduced
        if not parameter.is_floating_point():  # integers and complex numbers stay, as in FSDP2
            dtype = reduced = None
        return _Used.apply(parameter, dtype or parameter.dtype, reduced, self.gathered)

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
        parameter: torch.Tensor,
        dtype: torch.dtype,
        reduced: torch.dtype | None,
        gathered: str | None,
    ) -> torch.Tensor:
        sharding = annotation_of(parameter)
        used = seen(parameter) if dtype == parameter.dtype else parameter.to(dtype)
        if gathered is not None and sharding is not None:
            rest = tuple(map(entry_of, beside(parameter, sharding.mesh, gathered)))
            annotate(used, handle_for(used, sharding.mesh, rest))
        return used

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        parameter, ctx.used, ctx.reduced, gathered = inputs
        ctx.dtype = parameter.dtype
        sharding = None if gathered is None else annotation_of(parameter)
        # of the gradient: it is summed to where it is kept
        ctx.lies = None if sharding is None else sharding._handle

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        found = gradient if ctx.reduced is None else gradient.to(ctx.reduced)
        if ctx.lies is not None:
            found = found.clone() if found is gradient else found
            annotate(found, ctx.lies)
        return found.to(ctx.dtype), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: Any) -> torch.Tensor:
        return tangent.to(ctx.used)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], parameter: torch.Tensor, *options: Any
    ) -> tuple[torch.Tensor, int | None]:
        """Parameters of many models in one tensor have a dim more: where they lie, they stay."""
        dtype, reduced, gathered = options
        many = in_dims[0] is not None
        return _Used.apply(parameter, dtype, reduced, None if many else gathered), in_dims[0]


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """Floating tensors in ``dtype``, all else as it is."""
    if dtype is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.to(dtype)


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Selective checkpoints count the ops of the program; those that are added here are none."""
    with contextlib.ExitStack() as stack:
        if isinstance(_get_current_dispatch_mode(), _SELECTIVE):
            stack.enter_context(_pop_mode_temporarily())
        yield


def _home(module: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    with contextlib.suppress(AttributeError):
        home = module.get_submodule(path)
        if isinstance(home._parameters.get(leaf), torch.Tensor):
            return home, leaf
    with naming("fully_shard"):
        raise ShardingError(
            f"{name} is no parameter any more: modules were wrapped or replaced after the call. "
            "Expected the modules that there were. Change them first, then call fully_shard."
        )


def _put(home: torch.nn.Module, leaf: str, tensor: Any) -> None:
    home._parameters[leaf] = tensor
    names = getattr(home, "_flat_weights_names", None)  # recurrent layers list them besides
    if isinstance(home, torch.nn.RNNBase) and names and leaf in names:
        home._flat_weights[names.index(leaf)] = tensor
