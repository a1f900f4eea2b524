# SPDX-License-Identifier: Apache-2.0
"""Programs that train, and what goes wrong in them, drafted from a seed."""

import dataclasses
import random

WORLDS = ((2, 1), (2, 2), (3, 1), (3, 2))  # processes, devices of each
SHAPES = {2: ((2,),), 3: ((3,),), 4: ((4,), (2, 2)), 6: ((6,), (3, 2), (2, 3))}
LAYERS = ("linear", "table", "attention", "conv", "norm", "dropout", "noise", "pass")
RANDOM = {"dropout", "noise"}  # layers whose numbers are not those of plain PyTorch
DEEDS = {  # percent
    "mark": 10,
    "wait": 3,
    "item": 8,
    "cpu": 4,
    "print": 3,
    "alone": 6,  # one process reads what all hold
    "pause": 6,
    "nothing": 60,
}
FLUSHES = ("mark", "wait", "item", "cpu", "print")

# Every kind, and where it may strike: "data" is the batch, "trace" any place between ops.
KINDS = {
    "index": "data",  # out of range: on the shard of one process, or on all
    "late index": "data",  # in what follows the updates
    "input": "data",  # other values on one process
    "loader": "data",  # it raises
    "number": "trace",  # another learning rate
    "op": "trace",
    "read": "trace",
    "mark": "trace",
    "no mark": "trace",
    "raises": "trace",
    "refused": "trace",  # an op that torch refuses
    "kernel": "trace",  # an op raises when it runs
    "interrupted": "trace",
    "shards": "trace",  # all give some, which one process refuses
}
ALL_AT_ONCE = ("index", "late index", "loader", "raises", "refused", "kernel", "interrupted")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that goes wrong; ``rank`` None: in every process."""

    kind: str
    step: int
    site: str
    rank: int | None
    delay: float  # seconds until an interruption
    amount: int  # which row, how many calls, or whether the others make the process wait


@dataclasses.dataclass(frozen=True)
class Program:
    """A training loop. Sites are the places between its ops; deeds happen there in every step."""

    seed: int
    processes: int
    devices: int
    mesh: tuple[int, ...]
    reversed: bool  # the mesh's devices
    rows: int
    width: int
    layers: tuple[str, ...]
    data: tuple  # the spec of a batch
    feed: str  # direct, loader, parts
    optimizer: str
    updates: int  # optimizers, which take the parameters in turn
    clips: bool
    copies: str  # the site where it copies tensors that are at hand; empty: none
    passes: bool  # what it counted through an op of its own, which may fail after the updates
    steps: int
    warm: bool  # whether a step is ended before the first
    end: str  # of every step: mark, item, nothing
    deeds: dict[str, tuple[str, ...]]
    snapshots: tuple[int, ...]
    keeps: str  # host, checkpoint
    repeats: bool  # go on from what `recover` promises, where that is the beginning of a step
    faults: tuple[Fault, ...]
    calm_first: bool
    idle_recover: bool  # before anything went wrong
    saves: bool  # a checkpoint at the end
    specs: int = 0  # another number, other specs

    @property
    def axes(self) -> tuple[str, ...]:
        return ("a", "b")[: len(self.mesh)]

    @property
    def ticks(self) -> int:
        """Of a step: each end of a step or deed that ends what was traced, and its own end."""
        return 1 + sum(deed in FLUSHES for some in self.deeds.values() for deed in some)

    def is_random(self) -> bool:
        return any(layer in RANDOM for layer in self.layers)

    def spec_of(self, name: str, dims: int) -> tuple:
        return spec(random.Random(f"{self.seed} {self.specs} {name}"), self.axes, dims)

    def text(self) -> str:
        """Field by field, for people."""
        fields = dataclasses.asdict(self)
        return "\n".join(f"  {name}: {value}" for name, value in fields.items())


def sites_of(layers: int, updates: int) -> list[str]:
    within = [f"layer {n}" for n in range(layers)]
    return ["feed", *within, "loss", "gradients", *(f"update {n}" for n in range(updates)), "late"]


def spec(draw: random.Random, axes: tuple[str, ...], dims: int) -> tuple:
    """Of a tensor with so many dims; each axis cuts one of them at most."""
    left, found = list(axes), []
    for _ in range(dims):
        some = draw.sample(left, draw.randint(1, len(left))) if left and draw.random() < 0.5 else []
        left = [axis for axis in left if axis not in some]
        found.append(None if not some else some[0] if len(some) == 1 else tuple(some))
    draw.shuffle(found)
    return tuple(found)


def drafted_fault(draw: random.Random, sites: list[str], layers: int, draft: dict) -> Fault:
    kinds = [kind for kind in KINDS if kind != "shards"]  # drafted apart
    kinds = [kind for kind in kinds if kind != "input" or draft["feed"] != "parts"]
    kinds = [kind for kind in kinds if kind != "loader" or draft["feed"] != "direct"]
    kind = draw.choice(kinds)
    places = sites + [f"backward {n}" for n in range(layers)]
    if KINDS[kind] == "data":
        places = ["data"]
    if kind == "number":
        places = sites[: layers + 3]
    if kind == "interrupted":
        places += ["mending"] * 3
    if kind == "no mark":
        places = [*(s for s, some in draft["deeds"].items() if "mark" in some), "end"]
    everywhere = kind in ("index", "late index") or (kind in ALL_AT_ONCE and draw.random() < 0.25)
    return Fault(
        kind=kind,
        step=draw.randrange(draft["steps"]),
        site=draw.choice(places),
        rank=None if everywhere else draw.randrange(draft["processes"]),
        delay=draw.choice((0.0, 0.001, 0.004, 0.015, 0.05)),
        amount=draw.randrange(3),
    )


def draft(seed: int) -> Program:
    draw = random.Random(seed)
    processes, devices = WORLDS[seed % len(WORLDS)]
    layers = tuple(draw.choice(LAYERS) for _ in range(draw.randint(2, 4)))
    mesh = draw.choice(SHAPES[processes * devices])
    feed = draw.choice(("direct", "direct", "loader", "parts"))
    axes = ("a", "b")[: len(mesh)]
    some = {"processes": processes, "feed": feed, "steps": draw.randint(3, 5)}
    updates = draw.randint(1, 3)
    sites = sites_of(len(layers), updates)
    names, weights = list(DEEDS), list(DEEDS.values())
    deeds = {site: draw.choices(names, weights)[0] for site in sites}
    some["deeds"] = {site: (deed,) for site, deed in deeds.items() if deed != "nothing"}
    apart = random.Random(f"{seed} apart")
    copies = apart.choice(sites) if apart.random() < 0.4 else ""
    in_one = copies != "" and apart.random() < 0.7  # a step that is undone from its beginning
    if in_one:
        some["deeds"] = {k: kinds for k, kinds in some["deeds"].items() if kinds[0] not in FLUSHES}
    count = 1 + (draw.random() < 0.15)
    faults = tuple(drafted_fault(draw, sites, len(layers), some) for _ in range(count))
    if apart.random() < 0.07:
        step, rank = apart.randrange(some["steps"]), apart.randrange(processes)
        fault = Fault("shards", step, apart.choice(sites), rank, 0.0, apart.randrange(3))
        faults = (fault, *faults[1:])
    if any(fault.kind == "kernel" for fault in faults):
        layers = (*layers[:-1], "pass")
    return Program(
        seed=seed,
        devices=devices,
        mesh=mesh,
        reversed=feed != "parts" and draw.random() < 0.2,
        rows=processes * devices * draw.randint(1, 2) if feed == "parts" else draw.randint(4, 9),
        width=draw.choice((4, 6, 8, 12)),
        layers=layers,
        data=(axes if len(axes) > 1 else axes[0], None, None)
        if feed == "parts"
        else spec(draw, axes, 3),
        optimizer=draw.choice(("sgd", "momentum", "adam", "adamw")),
        updates=updates,
        clips=draw.random() < 0.2,
        passes=draw.random() < 0.3,
        copies=copies,
        warm=draw.random() < 0.6,
        end="mark" if in_one else draw.choice(("mark", "mark", "item", "nothing")),
        snapshots=(0, *(step for step in range(1, some["steps"]) if draw.random() < 0.3)),
        keeps=draw.choice(("host", "host", "checkpoint")),
        repeats=draw.random() < 0.9,
        faults=faults,
        calm_first=draw.random() < 0.7,
        idle_recover=draw.random() < 0.1,
        saves=draw.random() < 0.15,
        **some,
    )
