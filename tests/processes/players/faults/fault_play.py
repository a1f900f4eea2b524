# SPDX-License-Identifier: Apache-2.0
"""One run of a drafted program: on the device, with faults or without, or in plain PyTorch."""

import contextlib
import pathlib
import random
import time
from collections.abc import Callable, Iterator

import spmdx
import torch
import torch.nn.functional as F
from fault_drafts import FLUSHES, Fault, Program
from fault_models import BINS, batch, made, pass_on
from fault_states import Kept
from fault_strikes import RANK, Interruptions, Strikes

PAUSE = 0.01  # seconds, at most
RATES = {"sgd": 0.05, "momentum": 0.05, "adam": 0.01, "adamw": 0.01}
MOST = 6  # times that a program is recovered: then it cannot be
Value = torch.Tensor | str


class Beyond(RuntimeError):
    """The program cannot go on."""


class Play:
    """A run.

    Args:
        program: what is run.
        device: "spmdx" or "cpu".
        faults: what goes wrong.
        folder: of snapshots, seen by all processes.
        note: is told what happens.
        interruptions: those that the run allows.
    """

    def __init__(
        self,
        program: Program,
        device: str,
        faults: tuple[Fault, ...] = (),
        folder: pathlib.Path | None = None,
        note: Callable[..., None] = lambda *_: None,
        interruptions: Interruptions | None = None,
    ):
        self.program, self.device, self.note = program, device, note
        self.here = device == "spmdx"
        self.strikes, self.interruptions = Strikes(faults), interruptions
        self.kept = Kept(self, folder)
        self.step, self.tracing = 0, 0  # the next one, and the one that is traced
        self.losses: dict[int, torch.Tensor] = {}
        self.reads: dict[str, Value] = {}
        self.random: dict[int, dict] = {}  # state of the generators at the beginning of a step
        self.reloads = 0
        if self.here:
            order = range(program.processes * program.devices)
            self.mesh = spmdx.Mesh(
                list(reversed(order) if program.reversed else order), program.mesh, program.axes
            )

    # ---- what lives across steps ----------------------------------------------------------------

    def build(self) -> None:
        """Everything anew, as at the start."""
        program = self.program
        self.model = made(program).to(self.device)
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if random.Random(f"{program.seed} {program.specs} lies {name}").random() < 0.7:
                self.place(tensor, program.spec_of(name, tensor.dim()))
        parameters = list(self.model.parameters())
        groups = [parameters[n :: program.updates] for n in range(program.updates)]
        self.optimizers = [self.optimizer(group) for group in groups]
        doubles = {"dtype": torch.float64, "device": self.device}
        self.rest = {
            "count": torch.zeros((), **doubles),  # ticks: how far the tensors have come
            "bins": self.place(torch.zeros(BINS, **doubles), program.spec_of("bins", 1)),
            "mean": torch.zeros((), **doubles),
            "mean before": torch.zeros((), **doubles),
            "mean before that": torch.zeros((), **doubles),
            "past": torch.zeros((), **doubles),
        }

    def optimizer(self, parameters: list) -> torch.optim.Optimizer:
        kind = self.program.optimizer
        if kind == "adam":
            return torch.optim.Adam(parameters, eps=1e-3)
        if kind == "adamw":
            return torch.optim.AdamW(parameters, eps=1e-3)
        return torch.optim.SGD(parameters, momentum=0.9 if kind == "momentum" else 0.0)

    def place(self, tensor: torch.Tensor, spec: tuple) -> torch.Tensor:
        return spmdx.mark_sharding(tensor, self.mesh, spec) if self.here else tensor

    def generators(self) -> dict:
        if self.here:
            return spmdx.checkpoint.rng_state().state_dict()
        return {"cpu": torch.get_rng_state()}

    def set_generators(self, state: dict) -> None:
        if self.here:
            spmdx.checkpoint.rng_state().load_state_dict(state)
        else:
            torch.set_rng_state(state["cpu"])

    # ---- a step ---------------------------------------------------------------------------------

    def on_host(self, step: int) -> dict[str, torch.Tensor]:
        host = batch(self.program, step)
        self.strikes.on_batch(step, host)
        return host

    def batches(self, first: int) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
        steps = range(first, self.program.steps)
        data = self.program.data
        if not self.here or self.program.feed == "direct":
            for step in steps:
                host = self.on_host(step)
                yield (
                    step,
                    {k: self.place(v.to(self.device), data[: v.dim()]) for k, v in host.items()},
                )
            return
        whole = self.program.feed == "loader"
        parts, part = (1, 0) if whole else spmdx.data.batch_shard(self.mesh, data)

        class Records:
            def __iter__(_):
                for step in steps:
                    yield {k: v.chunk(parts)[part] for k, v in self.on_host(step).items()}

        sharding = {
            key: spmdx.data.ShardingSpec(self.mesh, data[:dims], minibatch=not whole)
            for key, dims in (("x", 3), ("words", 2), ("wanted", 2), ("bins", 2))
        }
        yield from zip(
            steps, spmdx.data.device_loader(Records(), input_sharding=sharding), strict=False
        )

    def tick(self) -> None:
        with torch.no_grad():
            self.rest["count"].add_(1)

    def mark(self) -> None:
        if self.here and not self.strikes.skips_mark:
            spmdx.mark_step()
        self.strikes.skips_mark = False

    def at(self, site: str, x: torch.Tensor) -> torch.Tensor:
        """Between two ops: what goes wrong here, and what the program does here in every step."""
        self.strikes.on_shards(self.tracing, site, self.rest["bins"])
        x = self.strikes.on_trace(self.tracing, site, x)
        if site == self.program.copies:
            self.rest["mean before that"].copy_(self.rest["mean before"])
            self.rest["mean before"].copy_(self.rest["mean"])
        for deed in self.program.deeds.get(site, ()):
            key = f"{deed} {self.tracing} {site}"
            if deed in FLUSHES:
                self.tick()
            if deed == "mark":
                self.mark()
            elif deed == "wait" and self.here:
                spmdx.sync(wait=True)
            elif deed == "alone" and RANK == 0 and self.program.end == "mark" and site == "feed":
                str(self.rest["mean"]), self.rest["mean"].item()  # of the step before
            elif deed == "item":
                self.reads[key] = torch.tensor(x.detach().sum().item())
            elif deed == "cpu":
                self.reads[key] = x.detach().cpu().clone()
            elif deed == "print" and self.here:
                self.reads[key] = str(x.detach())
            elif deed == "pause" and self.here:
                time.sleep(random.Random(f"{self.program.seed} {site} {RANK}").uniform(0, PAUSE))
        return x

    def hook(self, site: str, x: torch.Tensor) -> torch.Tensor:
        """In the midst of backward, nothing is done but what goes wrong there."""
        if any(fault.site == site for fault in self.program.faults):
            x.register_hook(lambda g: self.strikes.on_trace(self.tracing, site, g * 1.0))
        return x

    def train(self, step: int, fed: dict[str, torch.Tensor]) -> None:
        self.tracing = step
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        x = self.at("feed", fed["x"]) + self.model.first(fed["words"])
        for n, layer in enumerate(self.model.layers):
            x = self.at(f"layer {n}", self.hook(f"backward {n}", layer(x, fed["words"])))
        loss = F.cross_entropy(self.model.head(x).flatten(0, 1), fed["wanted"].flatten())
        self.at("loss", loss).backward()
        self.at("gradients", self.rest["mean"])
        if self.program.clips:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        for n, optimizer in enumerate(self.optimizers):
            optimizer.param_groups[0]["lr"] = (
                RATES[self.program.optimizer] * 0.9**step * self.strikes.factor
            )
            optimizer.step()
            self.at(f"update {n}", self.rest["mean"])
        self.strikes.factor = 1.0
        with torch.no_grad():
            ones = torch.ones_like(fed["bins"].flatten(), dtype=torch.float64)
            self.rest["bins"].index_add_(0, fed["bins"].flatten(), ones)
            self.rest["mean"].mul_(0.5).add_(loss.detach(), alpha=0.5)
            self.rest["past"].mul_(0.9).add_(self.rest["mean before that"])
            if self.program.passes:
                self.rest["mean"].copy_(pass_on(self.rest["mean"]))
        self.at("late", self.rest["bins"])
        self.losses[step] = loss.detach()
        self.end(step)

    def end(self, step: int) -> None:
        self.strikes.on_trace(step, "end", self.rest["mean"])
        self.random[step + 1] = self.generators()
        self.tick()
        if self.program.end == "mark":
            self.mark()
        elif self.program.end == "item":
            self.reads[f"end {step}"] = torch.tensor(self.losses[step].item())

    # ---- the run --------------------------------------------------------------------------------

    def run(self) -> dict[str, Value]:
        """Trains to the end, whatever happens; returns all that lasts. `reads` are apart."""
        torch.manual_seed(self.program.seed)
        self.build()
        if self.here and self.program.warm:
            spmdx.mark_step()
        self.random[0] = self.generators()
        self.kept.keep(0)
        mending = False
        while True:
            try:
                with self.welcome():
                    if mending:
                        self.mend()
                    mending = False
                    self.go_on()
                return self.ended()
            except (Exception, KeyboardInterrupt) as error:
                if not self.here or self.strikes.turn >= MOST:
                    raise Beyond(f"{type(error).__name__}: {error}") from error
                self.note("caught", type(error).__name__, str(error), self.tracing)
                mending = True

    @contextlib.contextmanager
    def welcome(self) -> Iterator[None]:
        """Where Ctrl-C may come."""
        if self.interruptions:
            self.interruptions.welcome = True
        try:
            yield
        finally:
            if self.interruptions:
                self.interruptions.welcome = False

    def go_on(self) -> None:
        for step, fed in self.batches(self.step):
            self.train(step, fed)
            self.step = step + 1
            if self.step in self.program.snapshots:
                self.kept.keep(self.step)

    def mend(self) -> None:
        """Goes on as `recover` says: from where the tensors are, or from a snapshot."""
        self.strikes.on_trace(self.tracing, "mending", self.rest["mean"])
        self.strikes.calm_down()
        try:
            spmdx.runtime.recover()
        except spmdx.CommError as error:
            self.note("recover says", str(error))
            return self.reload()
        ticks = round(self.rest["count"].item())
        self.note("recovered", ticks)
        step, within = divmod(ticks, self.program.ticks)
        if within or not self.program.repeats:
            return self.reload()
        self.step = step
        self.set_generators(self.random[step])
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                if "step" in state:  # which is on the host
                    state["step"].fill_(step)
            if not step:
                optimizer.state.clear()

    def reload(self) -> None:
        self.step = self.kept.last()
        self.build()
        self.kept.fill(self.step)
        spmdx.mark_step()  # what one process reads alone must have been computed
        self.reloads += 1
        self.note("reloaded", self.step)

    def tensors(self) -> dict[str, torch.Tensor]:
        found = dict(self.model.state_dict())
        for n, optimizer in enumerate(self.optimizers):
            for at, parameter in enumerate(optimizer.param_groups[0]["params"]):
                found |= {
                    f"optimizer {n} {at} {name}": value
                    for name, value in optimizer.state.get(parameter, {}).items()
                    if isinstance(value, torch.Tensor)
                }
        return found | self.rest

    def ended(self) -> dict[str, Value]:
        if self.here:
            spmdx.sync(wait=True)
        host = {name: value.detach().cpu() for name, value in self.tensors().items()}
        host |= {f"loss {step}": loss.cpu() for step, loss in self.losses.items()}
        host["drawn on the host"] = torch.rand(4)
        if self.here:
            host["drawn"] = torch.rand(4, device="spmdx").cpu()
        return host
