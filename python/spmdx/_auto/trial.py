# SPDX-License-Identifier: Apache-2.0
"""What the parts of a model cost on one device of the axis "model", each planned alone and once."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_map

import spmdx._C as _C
from spmdx._annotate.annotation import sharding_of
from spmdx._annotate.mesh import Mesh
from spmdx._auto.alike import Kind
from spmdx._auto.depths import depths_in
from spmdx._auto.laid import Layout
from spmdx._pipelines.trial import gradient_like, lazy_in
from spmdx._pipelines.units import Units


class Program(NamedTuple):
    """What is laid over devices: a step of a list of microbatches, its model, and an optimizer."""

    step: Callable[[list[Any]], Any]
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None


@dataclass
class Part:
    """A part of the model, as ``csrc/passes/parallelism/estimate.h`` has it."""

    forward_ns: int = 0
    backward_ns: int = 0
    wire_bytes: int = 0
    activation_bytes: int = 0
    transient_bytes: int = 0
    output_bytes: int = 0
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    state_bytes: int = 0
    fixed_bytes: int = 0
    accumulate_ns: int = 0
    update_ns: int = 0


@dataclass
class Run:
    """A part that was planned, and what it gave."""

    part: Part
    outputs: Any


class Trial:
    """A step of which each part is planned alone, and parts that are alike are planned once.

    In place of a part that is known by its kind and its inputs, its results are given again.

    Attributes:
        order: names of the units that hold something, in the order in which they ran.
        depths: by id of a kind, of its modules with matrices; see :func:`depths_in`.
    """

    def __init__(self, program: Program, units: Units, kinds: Mapping[str, Kind]):
        self.order: list[str] = []
        self._program, self._units, self._kinds = program, units, kinds
        self.depths: dict[int, dict[str, int]] = {}
        self._known: dict[tuple, Run] = {}
        self._parameters = {n: list(u.parameters()) for n, u in units.whole.items()}
        self._held = {
            n: {id(t) for t in [*u.parameters(), *u.buffers()]} for n, u in units.whole.items()
        }
        self._layout = Layout(program.model)
        self._chain: list[Part] = []
        self._counted: set[int] = set()  # parameters whose bytes a part has
        self._owned: set[int] = set()  # tensors of units that ran
        # Tensors that are saved for backward passes: by the unit that runs, and outside of all.
        self._saved: list[torch.Tensor] | None = None
        self._beside: list[torch.Tensor] = []

    def run(self, mesh: Mesh | None, specs: Mapping[str, tuple], batch: Any) -> "_C.ModelCost":
        """Plans a step of one microbatch.

        Args:
            mesh: of the axis "model"; None: one device.
            specs: of the parameters that are cut.
            batch: the microbatch.
        """
        self._chain, self.order, self._counted, self._owned = [], [], set(), set()
        self._layout.change(mesh, specs)
        self._beside = []
        with self._in_place():
            self._program.step([batch])
            rest = _C.planned()
        self._add_loss(rest)
        self._count_others()
        self._program.model.zero_grad(set_to_none=True)
        return _cost_of(self._chain)

    def _add_loss(self, rest: "_C.PlannedCost") -> None:
        """What the program does behind the last part, as a part of that."""
        if not self._chain:
            self._chain.append(Part())
            self.order.append("")  # of no unit
        last = replace(self._chain[-1])
        last.backward_ns += rest.ns
        last.wire_bytes += rest.wire_bytes
        kept = sum(map(_bytes, {_C.memory_id(t): t for t in self._beside}.values()))
        last.activation_bytes += kept
        last.transient_bytes = max(last.transient_bytes, rest.peak_bytes - kept)
        self._chain[-1], self._beside = last, []

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """A block in which the units' forward passes are ours."""
        before = {name: vars(unit).get("forward") for name, unit in self._units.whole.items()}
        for name, unit in self._units.whole.items():
            unit.forward = self._forward(name, unit.forward)
        saving = torch.autograd.graph.saved_tensors_hooks(self._save, lambda saved: saved)
        try:
            with torch.enable_grad(), saving:
                yield
        finally:
            for name, unit in self._units.whole.items():
                del unit.forward
                own: Any = before[name]
                if own is not None:
                    unit.forward = own

    def _forward(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._saved is not None:  # within another unit, or its checkpoint's second time
                return original(*args, **kwargs)
            before = _C.planned()
            own, (leaves, tree) = self._parameters[name], tree_flatten((args, kwargs))
            key = (
                id(self._kinds[name]),
                str(self._layout.mesh),
                *map(self._layout.spec, own),
                repr(tree),
                *map(_described, leaves),
            )
            run = self._known.get(key)
            if run is None:
                run = self._known[key] = self._planned(name, original, args, kwargs)
            self._counted.update(map(id, own))
            self._append(name, run.part, before.ns)
            return tree_map(_detached, run.outputs)  # of its own, as each call gives

        return forward

    def _append(self, name: str, part: Part, before_ns: int) -> None:
        """The next part of the chain; without a tensor of its own it belongs to the one before."""
        own = self._held[name] - self._owned
        self._owned |= own
        if before_ns:
            part = replace(part, forward_ns=part.forward_ns + before_ns)
        if own or not self._chain:
            self._chain.append(part)
            self.order.append(name)
            return
        last = self._chain[-1]
        both = {n: getattr(last, n) + getattr(part, n) for n in vars(part)}
        passing = max(last.transient_bytes, part.transient_bytes)
        both |= {"output_bytes": part.output_bytes, "transient_bytes": passing}
        self._chain[-1] = Part(**both)

    def _planned(self, name: str, original: Callable[..., Any], args: Any, kwargs: Any) -> Run:
        unit = self._units.whole[name]
        held = [*unit.parameters(), *unit.buffers()]
        part, self._saved = Part(), []
        try:
            with self._watched(name, unit):
                outputs = original(*args, **kwargs)
            forward = _C.planned()
            part.forward_ns, part.wire_bytes = forward.ns, forward.wire_bytes
            kept = {_C.memory_id(t) for t in held}
            saved = {_C.memory_id(t): t for t in self._saved}
            part.activation_bytes = sum(_bytes(t) for m, t in saved.items() if m not in kept)
            part.output_bytes = sum(map(_bytes, lazy_in(outputs)))
            self._go_back(part, unit, lazy_in((args, kwargs)), lazy_in(outputs))
        finally:
            self._saved = None
        return Run(part, tree_map(_detached, outputs))

    @contextlib.contextmanager
    def _watched(self, name: str, unit: torch.nn.Module) -> Iterator[None]:
        """The first time, a block in which depths are found."""
        kind = id(self._kinds[name])
        if kind in self.depths:
            yield
            return
        with depths_in(unit) as depths:
            yield
        self.depths[kind] = depths

    def _save(self, tensor: torch.Tensor) -> torch.Tensor:
        if _C.is_lazy(tensor):
            (self._beside if self._saved is None else self._saved).append(tensor)
        return tensor.detach()

    def _go_back(
        self, part: Part, unit: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> None:
        """The backward pass, what the unit holds, and its update."""
        own = [p for p in unit.parameters() if id(p) not in self._counted]
        ends = [t for t in outputs if t.requires_grad]
        wanted = [t for t in [*inputs, *unit.parameters()] if t.requires_grad]
        if ends and wanted:
            seeds = [gradient_like(t) for t in ends]
            _C.planned()
            found = torch.autograd.grad(ends, wanted, seeds, allow_unused=True)
            backward = _C.planned()
            part.backward_ns = backward.ns
            part.wire_bytes += backward.wire_bytes
            held = sum(map(_bytes, unit.parameters())) + part.activation_bytes
            part.transient_bytes = max(0, backward.peak_bytes - held - sum(map(_bytes, own)))
            del found
        part.fixed_bytes = sum(map(_bytes, unit.buffers()))
        self._count(part, own)

    def _count(self, part: Part, parameters: list[torch.nn.Parameter]) -> None:
        """What devices hold of parameters, and how long it takes to add gradients and to update."""
        self._counted.update(map(id, parameters))
        learned = [p for p in parameters if p.requires_grad]
        part.fixed_bytes += sum(_bytes(p) for p in parameters if not p.requires_grad)
        part.parameter_bytes += sum(map(_bytes, learned))
        part.gradient_bytes += sum(map(_bytes, learned))
        if not learned:
            return
        part.accumulate_ns += _time_to_add(learned)
        optimizer = self._program.optimizer
        if optimizer is None:
            return
        for _ in range(2):  # the first makes the state
            for parameter in learned:
                parameter.grad = gradient_like(parameter)
            _C.planned()
            optimizer.step()
            update = _C.planned()
        part.update_ns += update.ns
        for parameter in learned:
            parameter.grad = None
            state = optimizer.state.pop(parameter, {})
            part.state_bytes += sum(map(_bytes, lazy_in(state)))

    def _count_others(self) -> None:
        """What no unit counted, as of modules that are opened or never called, is the first's."""
        left = [p for p in self._program.model.parameters() if id(p) not in self._counted]
        if left:
            first = replace(self._chain[0])
            self._count(first, left)
            self._chain[0] = first


def _time_to_add(parameters: list[torch.nn.Parameter]) -> int:
    """In ns: of gradients of these to others."""
    both = [(gradient_like(p), gradient_like(p)) for p in parameters]
    _C.planned()
    for total, gradient in both:
        total.add_(gradient)
    return int(_C.planned().ns)


def _cost_of(chain: list[Part]) -> "_C.ModelCost":
    """Parts that are the same as one, and their order."""
    places: dict[int, int] = {}
    parts: list[Part] = []
    for part in chain:
        if id(part) not in places:
            places[id(part)] = len(parts)
            parts.append(part)
    return _C.ModelCost([asdict(part) for part in parts], [places[id(part)] for part in chain])


def _bytes(tensor: torch.Tensor) -> int:
    return _C.local_bytes(tensor) if _C.is_lazy(tensor) else 0


def _described(value: Any) -> Any:
    """What a part's cost depends on, of an argument."""
    if isinstance(value, torch.Tensor):
        lying = repr(sharding_of(value)) if _C.is_lazy(value) else "elsewhere"
        return value.shape, value.dtype, value.requires_grad, lying
    return repr(value) if isinstance(value, int | float | str | bool | None) else id(value)


def _detached(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)
