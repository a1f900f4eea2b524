# SPDX-License-Identifier: Apache-2.0
"""What strategies would take, from the plans of a model's parts."""

from collections.abc import Sequence

import spmdx._C as _C
from spmdx._auto.cuts import Cuts, Given, choices_of, starts_of
from spmdx._auto.parts.sizes import Sizes
from spmdx._auto.space import Estimated, Space, most_model
from spmdx._auto.strategy import Strategy, tensors_in
from spmdx._auto.trial import Program, Trial
from spmdx._pipelines.units import units_of
from spmdx._program.memory_limit import without_memory_limit

# A plan that takes so many times its estimate, unless all do, or so much less, does something else
# than its estimate: it tells of those with the same axes.
ANOTHER_WAY = 1.7
SEVERAL = 3  # plans that tell what all do
SLACK = 1.2  # of the best whole plan: up to which corrected estimates may be better


class Estimates:
    """Estimates for one program. REQUIRES: nothing but planning goes on.

    Attributes:
        zero: stages of ZeRO that strategies have.
    """

    def __init__(self, program: Program, space: Space):
        self._space = space
        self.zero = space.zero if program.optimizer is not None else [0]
        units = units_of(program.model, 2)
        shapes = [t.shape for t in tensors_in(space.batch)]
        choices, kinds = choices_of(program.model, units, shapes)
        self._choices = tuple(choices)
        self._trial = Trial(program, units, kinds)
        self._costs: dict[tuple, tuple[_C.ModelCost, tuple[str, ...]]] = {}
        self._cuts: dict[int, Cuts] = {1: Cuts(self._choices, (None,) * len(choices))}
        self._usual: dict[int, list[Cuts]] = {}
        self._sizes = Sizes(space.samples, lambda samples: self._cost(self._cuts[1], samples, 1))

    def of_all(self, devices: int, roughly: bool = False) -> list[Estimated]:
        """All parallelisms of so many devices, those that take least first.

        ``roughly``: what "model" cuts is taken as it is known, or as it is likely.
        """
        all_of_them = self.parallelisms(devices)
        for model in sorted({parallelism.model for parallelism in all_of_them}):
            self.cuts_for(model, devices, roughly)
        found = []
        for parallelism in all_of_them:
            cuts = self.cuts_for(parallelism.model, devices)
            if parallelism.model > 1 and all(dim is None for dim in cuts.dims):
                continue  # there is nothing to cut
            found.append(self.of(parallelism, cuts, parallelism.microbatches))
        return sorted(found, key=lambda e: e.estimate.step_ns)

    @property
    def parts(self) -> int:
        """Of the model, that hold something: so many stages it can have."""
        return len(self._cost(self._cuts[1], self._sizes.least(1), 1)[1])

    def parallelisms(self, devices: int) -> list["_C.Parallelism"]:
        """All of so many devices, whether there is something to cut or not."""
        space = self._space
        most, sizes = most_model(), (devices, space.samples)
        found = _C.parallelisms(*sizes, most, self.parts, self.zero, space.schedules)
        return [p for p in found if self._sizes.has(space.samples // p.microbatches)]

    def of(self, parallelism: "_C.Parallelism", cuts: Cuts | Given, pieces: int) -> Estimated:
        """The estimate, for microbatches of a batch that is split into ``pieces``."""
        samples = self._sizes.least(self._space.samples // (parallelism.data * pieces))
        cost, order = self._cost(cuts, samples, parallelism.model)
        estimate = _C.estimate(parallelism, cost, self._space.memory_limit)
        return Estimated(parallelism, estimate, cuts, order)

    def given(self, strategy: Strategy, cuts: Given) -> Estimated:
        """The estimate of a strategy as it was given."""
        s = strategy
        within = s.context * s.model  # of what a part is planned on
        parallelism = _C.Parallelism(
            s.data, within, s.pipe, s.microbatches, s.zero, s.schedule or "1f1b"
        )
        return self.of(parallelism, cuts, s.microbatches)

    def cuts_for(self, model: int, devices: int, roughly: bool = False) -> Cuts:
        """What "model" cuts: what costs least where data parallelism has the other devices."""
        if model not in self._cuts:
            options = [choice.options(model) for choice in self._choices]
            alike = self._beside_data(model, devices)

            def cuts(taken: Sequence[int]) -> Cuts:
                dims = tuple(o[t] for o, t in zip(options, taken, strict=True))
                return Cuts(self._choices, dims)

            def cost(taken: Sequence[int]) -> float:
                parts, _ = self._cost(cuts(taken), self._sizes.least(1), model)
                return float(_C.estimate(alike, parts, 0).step_ns)

            starts = starts_of(self._choices, options, self._trial.depths)
            descents = 2 if len(self._cuts) == 1 else 1
            if roughly or model > most_model():  # the latter: all devices, for comparison
                descents = 0
            starts = [*self._as_before(options), *starts]
            settled = cuts(_C.settle([len(o) for o in options], starts, descents, cost))
            if all(dim is None for dim in settled.dims):  # an axis is there to cut something
                settled = cuts(min(starts[-2:], key=cost))
            self._cuts[model] = settled
            self._usual[model] = [cuts(start) for start in starts[-2:]]
        return self._cuts[model]

    def usually_cut(self, estimated: Estimated) -> list[Estimated]:
        """The same with what Megatron-LM would cut, where that is something else."""
        parallelism = estimated.parallelism
        others = {cuts.dims: cuts for cuts in self._usual.get(parallelism.model, [])}
        return [
            self.of(parallelism, cuts, parallelism.microbatches)
            for dims, cuts in others.items()
            if dims != estimated.cuts.dims and any(dim is not None for dim in dims)
        ]

    def _as_before(self, options: list[list[int | None]]) -> list[list[int]]:
        """The cuts that were settled last, as far as these options have them."""
        last = [*self._cuts.values()][-1].dims
        if len(self._cuts) == 1:
            return []
        return [[o.index(d) if d in o else 0 for o, d in zip(options, last, strict=True)]]

    def _beside_data(self, model: int, devices: int) -> "_C.Parallelism":
        """Of so many devices those of "model", all others of "data"; small microbatches."""
        all_of_them = _C.parallelisms(devices, devices, model, 1, [0], [])
        found = next(p for p in all_of_them if p.model == model and p.microbatches == 1)
        size = self._sizes.least(1) * devices // model  # of a microbatch, of all devices
        return found.with_microbatches(max(1, self._space.samples // size))

    def _cost(
        self, cuts: Cuts | Given, samples: int, model: int
    ) -> tuple["_C.ModelCost", tuple[str, ...]]:
        """What the model costs on ``model`` devices for so many samples, and its parts' names."""
        key = cuts.dims, samples, model
        if key not in self._costs:
            mesh, batch = None, self._space.microbatch(samples)
            if model > 1:
                strategy = Strategy(
                    model=model // cuts.context,
                    sequence=cuts.cuts_sequence,
                    context=cuts.context,
                )
                mesh = strategy.mesh()
                batch = strategy.mark_batch(batch, mesh)
            _C.flush()  # its random numbers are none of the step's, and what a failed one left
            with without_memory_limit():  # what is computed again, is estimated
                cost = self._trial.run(mesh, cuts.specs(), batch)
            self._costs[key] = cost, tuple(self._trial.order)
        return self._costs[key]


class Promise:
    """What strategies may take: estimates, corrected by whole plans of those most like them.

    Plans choose what is cheapest to compute again: half of what is estimated for that counts,
    until they tell.
    """

    def __init__(self, estimated: list[Estimated]):
        self._left = {id(e): e for e in estimated}
        self._once = {key: float(_once_ns(e)) for key, e in self._left.items()}
        self._near, self._again = _Nearest(), _Nearest()
        self._known: set[int] = set()
        self._ratios: list[float] = []  # of all that is known

    def knows(self, estimated: Estimated) -> bool:
        """Whether it was learnt what this one takes, without what is computed again."""
        return id(estimated) in self._known

    def learn(self, estimated: Estimated, once_ns: int) -> None:
        """A step of this one takes so long, without what is computed again."""
        if self.knows(estimated):
            return
        self._known.add(id(estimated))
        self._once[id(estimated)] = once_ns
        ratio = once_ns / _once_ns(estimated)
        self._ratios.append(ratio)
        of_all = min(self._ratios) if len(self._ratios) >= SEVERAL else 1
        is_usual = 1 / ANOTHER_WAY < ratio <= ANOTHER_WAY * max(1, of_all)
        for key, other in self._left.items():
            is_like = is_usual or axes_of(estimated.parallelism) == axes_of(other.parallelism)
            if key not in self._known and is_like:
                self._near.tell(other, estimated, ratio)
                self._once[key] = _once_ns(other) * self._near.of(other, 1.0)

    def step_ns(self, estimated: Estimated) -> float:
        """What this one may take, or takes."""
        again_ns = estimated.estimate.recomputed_ns
        return self._once[id(estimated)] + again_ns * self._again.of(estimated, 0.5)

    def settle(self, estimated: Estimated, again_ns: int) -> None:
        """What this one takes is known, and how much of it is computed again."""
        self._left.pop(id(estimated), None)
        if likely := estimated.estimate.recomputed_ns:
            for other in self._left.values():
                self._again.tell(other, estimated, again_ns / likely)

    def left(self) -> list[Estimated]:
        """Those that are not settled."""
        return [*self._left.values()]

    def best(self, least: float) -> Estimated | None:
        """That which may take least, unless none may take less than ``least``."""
        may = [e for key, e in self._left.items() if self._once[key] < least * self._slack(key)]
        return min(may, key=self.step_ns, default=None)

    def _slack(self, key: int) -> float:
        return 1.0 if key in self._known else SLACK


class _Nearest:
    """Ratios that are known of strategies, of those that are most like another one."""

    def __init__(self) -> None:
        self._ratios: dict[int, tuple[int, list[float]]] = {}  # how far, and ratios there

    def tell(self, of: Estimated, known: Estimated, ratio: float) -> None:
        """A ratio that is known of ``known`` may be that of ``of``."""
        far = _unlike(known.parallelism, of.parallelism)
        nearest, ratios = self._ratios.get(id(of), (far, []))
        if far <= nearest:
            self._ratios[id(of)] = far, [*ratios, ratio] if far == nearest else [ratio]

    def of(self, estimated: Estimated, unless_known: float) -> float:
        """The mean of the nearest."""
        _, ratios = self._ratios.get(id(estimated), (0, []))
        return sum(ratios) / len(ratios) if ratios else unless_known


def _once_ns(estimated: Estimated) -> int:
    estimate = estimated.estimate
    return max(1, estimate.step_ns - estimate.recomputed_ns)


def axes_of(parallelism: "_C.Parallelism") -> tuple[int, int, int]:
    """Sizes of the axes."""
    return parallelism.pipe, parallelism.data, parallelism.model


def _unlike(a: "_C.Parallelism", b: "_C.Parallelism") -> int:
    """How far two are from each other, in factors of two and in settings."""

    def factors(name: str) -> int:
        return abs(getattr(a, name).bit_length() - getattr(b, name).bit_length())

    settings = (a.zero != b.zero) + (a.schedule != b.schedule)
    axes = factors("pipe") + factors("data") + factors("model")
    return 2 * (axes + settings) + factors("microbatches")
