# SPDX-License-Identifier: Apache-2.0
"""A trial: a model is called without running anything, and its units are planned as they come."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import spmdx._C as _C
from spmdx._annotate.annotation import annotate
from spmdx._pipelines.units import Units


def lazy_in(tree: Any) -> list[torch.Tensor]:
    """The tensors of the device in nested containers."""
    return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor) and _C.is_lazy(t)]


@dataclass
class Call:
    """A call of a unit: what it costs for these arguments, on the device that has most to do."""

    unit: str
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor] = field(default_factory=list)
    forward_ns: int = 0
    backward_ns: int = 0
    activation_bytes: int = 0


class Trial:
    """The calls of the units of a model, in order.

    The trace ends before and after each unit: so there is a plan of its forward pass, with what the
    program does before it since the last one, and one of its backward pass. Alike units have the
    same plan, which is found again.

    Attributes:
        calls: what ran.
        starts: of a module that was opened, how many calls there were before it ran.
    """

    def __init__(self, model: torch.nn.Module, units: Units):
        self.calls: list[Call] = []
        self.starts: dict[str, int] = {}
        self._model, self._units = model, units
        held = [*model.parameters(), *model.buffers()]
        self._kept = {_C.memory_id(t) for t in lazy_in(held)}  # from step to step
        self._parameters = {n: list(u.parameters()) for n, u in units.whole.items()}
        self._open: Call | None = None
        self._goes_back = False
        self._saved: list[torch.Tensor] = []

    def run(self, args: Any, kwargs: Any) -> None:
        """Calls the model. REQUIRES: nothing but planning goes on."""
        with self._hooked(), torch.enable_grad():
            with torch.autograd.graph.saved_tensors_hooks(self._save, lambda saved: saved):
                result = self._model(*args, **kwargs)
            rest = _C.planned().ns
        if self.calls:
            self.calls[-1].forward_ns += rest
        del result

    @contextlib.contextmanager
    def _hooked(self) -> Iterator[None]:
        handles = []
        for name, module in self._units.opened.items():
            handles.append(module.register_forward_pre_hook(self._starting(name)))
        for name, unit in self._units.whole.items():
            handles.append(unit.register_forward_pre_hook(self._before(name), with_kwargs=True))
            handles.append(unit.register_forward_hook(self._after))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _starting(self, name: str) -> Any:
        def start(module: Any, args: Any) -> None:
            self.starts.setdefault(name, len(self.calls))

        return start

    def _before(self, name: str) -> Any:
        def before(unit: Any, args: Any, kwargs: Any) -> None:
            if self._open is not None or self._goes_back:  # checkpoints call units once more
                return
            call = Call(name, lazy_in((args, kwargs)), forward_ns=_C.planned().ns)
            self._open, self._saved = call, []

        return before

    def _after(self, unit: Any, args: Any, output: Any) -> None:
        call = self._open
        if call is None or unit is not self._units.whole[call.unit]:
            return
        self._open, call.outputs = None, lazy_in(output)
        call.forward_ns += _C.planned().ns
        saved = {_C.memory_id(t): t for t in self._saved}
        self._saved = []
        call.activation_bytes = sum(
            _C.local_bytes(t) for memory, t in saved.items() if memory not in self._kept
        )
        self._goes_back = True
        call.backward_ns = self._backward_ns(call)
        self._goes_back = False
        self.calls.append(call)

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._open is not None and _C.is_lazy(tensor):
            self._saved.append(tensor)
        return tensor.detach()  # an op that saves its own result would hold itself for ever

    def _backward_ns(self, call: Call) -> int:
        ends = [t for t in call.outputs if t.requires_grad]
        wanted = [t for t in [*call.inputs, *self._parameters[call.unit]] if t.requires_grad]
        if not ends or not wanted:
            return 0
        gradients = [gradient_like(t) for t in ends]
        _C.planned()
        found = torch.autograd.grad(ends, wanted, gradients, retain_graph=True, allow_unused=True)
        time = _C.planned().ns
        del found  # what nobody holds is not planned
        return time


def gradient_like(tensor: torch.Tensor) -> torch.Tensor:
    """Ones that lie as ``tensor`` does."""
    gradient = torch.ones_like(tensor, requires_grad=False)
    handle = _C.sharding_of(tensor)
    if handle is not None and not handle.partial:
        annotate(gradient, handle)
    return gradient
