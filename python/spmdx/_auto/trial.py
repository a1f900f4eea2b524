# SPDX-License-Identifier: Apache-2.0
"""What the parts of a model cost on one device of the axis "model", each planned alone and once."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_map

import spmdx._C as _C
from spmdx._annotate.annotation import sharding_of
from spmdx._annotate.mesh import Mesh
from spmdx._auto.alike import Kind
from spmdx._auto.parts.behind import cut_off, detached, results_of
from spmdx._auto.parts.beside import Beside, with_update
from spmdx._auto.parts.checkpoints import Around, checkpoints_around, is_second_time
from spmdx._auto.parts.costs import Call, Part, Run, cost_of, parts_of
from spmdx._auto.parts.depths import depths_in
from spmdx._auto.parts.laid import Layout, local_bytes
from spmdx._auto.parts.updates import Updates, count
from spmdx._pipelines.trial import gradient_like, lazy_in
from spmdx._pipelines.units import Units


class Program(NamedTuple):
    """What is laid over devices: a step of a list of microbatches, its model, and an optimizer."""

    step: Callable[[list[Any]], Any]
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None


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
        self._layout, self._updates, self._behind = Layout(program.model), Updates(), Beside()
        self._calls: list[Call] = []
        self._chain: list[Part] = []
        self._counted: set[int] = set()  # parameters whose bytes a part has
        self._owned: set[int] = set()  # tensors of units that ran
        # Tensors that are saved for backward passes: by the unit that runs, and outside of all.
        self._saved: list[torch.Tensor] | None = None
        self._beside: list[torch.Tensor] = []
        self._kept: dict[int, torch.Tensor] = {}  # of the latter, by memory, those that are counted

    def run(self, mesh: Mesh | None, specs: Mapping[str, tuple], batch: Any) -> "_C.ModelCost":
        """Plans a step of one microbatch.

        Args:
            mesh: of the axis "model"; None: one device.
            specs: of the parameters that are cut.
            batch: the microbatch.
        """
        self._calls, self._chain, self.order = [], [], []
        self._counted, self._owned = set(), set()
        self._program.model.zero_grad(set_to_none=True)  # of a step that raised
        self._layout.change(mesh, specs)
        self._beside, self._kept = [], {}
        self._behind = Beside()
        with self._in_place(), self._updates.put_off(self._program.optimizer):
            self._program.step([batch])
            rest = _C.planned()
        self._program.model.zero_grad(set_to_none=True)
        for call, part in zip(self._calls, parts_of(self._calls), strict=True):
            self._append(call.unit, part)
        for cost in self._behind.passes or [rest]:
            self._add_loss(cost)
        self._count_others()
        self._calls = []
        return cost_of(with_update(self._chain, rest if self._behind.passes else None))

    def _add_loss(self, rest: "_C.PlannedCost") -> None:
        """What the program does behind the last part, as a part of that."""
        if not self._chain:
            self._chain.append(Part())
            self.order.append("")  # of no unit
        last = replace(self._chain[-1])
        last.backward_ns += rest.ns
        last.wire_bytes += rest.wire_bytes
        last.ops += rest.ops
        kept = self._kept_beside()
        last.activation_bytes += kept
        last.transient_bytes = max(last.transient_bytes, rest.peak_bytes - kept)
        self._chain[-1], self._kept = last, {}

    def _kept_beside(self) -> int:
        """Bytes that were saved outside of units since this was asked last."""
        saved = {_C.memory_id(t): t for t in self._beside}
        fresh = [t for memory, t in saved.items() if memory not in self._kept]
        self._kept |= saved
        self._beside = []
        return sum(map(local_bytes, fresh))

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
            if self._saved is not None:  # within another unit
                return original(*args, **kwargs)
            around, is_second = checkpoints_around(), is_second_time()
            if around.hides_gradients:
                args, kwargs = tree_map(_learning, (args, kwargs))
            before = None if is_second else _C.planned()
            learns = torch.is_grad_enabled() or around.hides_gradients
            key = learns, *self._key(name, (args, kwargs), bool(around.each) or is_second)
            run = self._known.get(key)
            if run is None:
                run = self._known[key] = self._planned(name, original, args, kwargs, around)
            if not is_second:
                self._counted.update(map(id, self._parameters[name]))
                beside = self._kept_beside() if around.each else 0
                self._calls.append(Call(name, run, before, beside, around.each))
            inputs, own = lazy_in((args, kwargs)), self._parameters[name]
            return results_of(run.outputs, inputs, own, run.gradients, self._behind.began)

        return forward

    def _key(self, name: str, given: Any, is_within: bool) -> tuple:
        """What a unit's cost depends on."""
        leaves, tree = tree_flatten(given)
        specs = map(self._layout.spec, self._parameters[name])
        described = map(_described, leaves)
        kind = id(self._kinds[name])
        return kind, str(self._layout.mesh), is_within, *specs, repr(tree), *described

    def _append(self, name: str, part: Part) -> None:
        """The next part of the chain; without a tensor of its own it belongs to the one before."""
        own = self._held[name] - self._owned
        self._owned |= own
        if own or not self._chain:
            self._chain.append(part)
            self.order.append(name)
            return
        last = self._chain[-1]
        both = {n: getattr(last, n) + getattr(part, n) for n in vars(part)}
        passing = max(last.transient_bytes, part.transient_bytes)
        both |= {"output_bytes": part.output_bytes, "transient_bytes": passing}
        self._chain[-1] = Part(**both)

    def _planned(
        self, name: str, original: Callable[..., Any], args: Any, kwargs: Any, around: Around
    ) -> Run:
        unit = self._units.whole[name]
        held = [*unit.parameters(), *unit.buffers()]
        inputs, (args, kwargs) = cut_off((args, kwargs))
        part, self._saved = Part(), []
        learns = torch.is_grad_enabled() or around.hides_gradients
        own_hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda saved: saved)
        try:
            with torch.set_grad_enabled(learns), own_hooks:
                with self._watched(name, unit):
                    outputs = original(*args, **kwargs)
                forward = _C.planned()
                part.forward_ns, part.wire_bytes = forward.ns, forward.wire_bytes
                part.ops = forward.ops
                kept = {_C.memory_id(t) for t in held}
                saved = {_C.memory_id(t): t for t in self._saved}
                part.activation_bytes = sum(
                    local_bytes(t) for m, t in saved.items() if m not in kept
                )
                part.output_bytes = sum(map(local_bytes, lazy_in(outputs)))
                gradients = self._go_back(part, unit, inputs, lazy_in(outputs))
                run = Run(part, tree_map(detached, outputs), gradients, forward)
                if around.each and part.backward_ns:
                    saved.clear()
                    self._saved = []
                    del outputs
                    run.again = self._again(run, unit, original, (args, kwargs))
        finally:
            self._saved = None
        return run

    def _again(self, run: Run, unit: Any, original: Callable[..., Any], given: Any) -> Part:
        """The part where its backward pass computes it again, as far as that pass reads it."""
        seeds = [gradient_like(t) for t in lazy_in(run.outputs) if t.requires_grad]
        wanted = [t for t in [*lazy_in(given), *unit.parameters()] if t.requires_grad]
        _C.planned()
        outputs = original(*given[0], **given[1])
        ends = [t for t in lazy_in(outputs) if t.requires_grad]
        found = torch.autograd.grad(ends, wanted, seeds, allow_unused=True)
        del outputs, ends  # what nobody holds is not planned
        self._saved = []
        both = _C.planned()
        del found
        held = 2 * sum(map(local_bytes, unit.parameters()))  # with their gradients
        return replace(
            run.part,
            backward_ns=both.ns,
            wire_bytes=run.forward.wire_bytes + both.wire_bytes,
            ops=run.forward.ops + both.ops,
            transient_bytes=max(0, both.peak_bytes - held),
        )

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
        if _C.is_lazy(tensor) and not is_second_time():
            (self._beside if self._saved is None else self._saved).append(tensor)
        return tensor.detach()

    def _go_back(
        self, part: Part, unit: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """The backward pass, what the unit holds, and its update; returns the gradients."""
        gradients: list[torch.Tensor | None] = []
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
            part.ops += backward.ops
            held = sum(map(local_bytes, unit.parameters())) + part.activation_bytes
            part.transient_bytes = max(0, backward.peak_bytes - held - sum(map(local_bytes, own)))
            gradients = [g if g is None else g.detach() for g in found]
        part.fixed_bytes = sum(map(local_bytes, unit.buffers()))
        self._count(part, own)
        return gradients

    def _count(self, part: Part, parameters: list[torch.nn.Parameter]) -> None:
        self._counted.update(map(id, parameters))
        with self._updates.of(parameters):
            count(part, parameters, self._program.optimizer)

    def _count_others(self) -> None:
        """What no unit counted, as of modules that are opened or never called, is the first's."""
        left = [p for p in self._program.model.parameters() if id(p) not in self._counted]
        if left:
            first = replace(self._chain[0])
            self._count(first, left)
            self._chain[0] = first


def _described(value: Any) -> Any:
    """What a part's cost depends on, of an argument."""
    if isinstance(value, torch.Tensor):
        lying = repr(sharding_of(value)) if _C.is_lazy(value) else "elsewhere"
        return value.shape, value.dtype, value.requires_grad, lying
    return repr(value) if isinstance(value, int | float | str | bool | None) else id(value)


def _learning(value: Any) -> Any:
    """As a reentrant checkpoint gives it to what it computes again."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().requires_grad_()
