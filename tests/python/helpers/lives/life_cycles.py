# SPDX-License-Identifier: Apache-2.0
"""Random lives of a module: drafted from a seed, lived on the CPU and on a mesh, compared."""

import dataclasses
import random
import warnings

import spmdx
import torch
from module_events import World
from spmdx._annotate.tensor import plain_class

MESHES = [(2,), (3,), (4,), (8,), (2, 2)]
TOLERANCE = 5e-5  # of the largest element, at least of 1


@dataclasses.dataclass(frozen=True)
class Life:
    """What happens to a module, in order: names of methods of :class:`World`, and a number each."""

    seed: int
    mesh: tuple
    events: tuple

    def __str__(self):
        return f"seed {self.seed}, mesh {self.mesh}\n" + "\n".join(
            f"  {e} {n}" for e, n in self.events
        )


# How often each event is drafted.
EVENTS = {
    World.mark: 5,
    World.mark_buffer: 1,
    World.mark_all: 2,
    World.clear: 1,
    World.train_step: 6,
    World.backward: 2,
    World.step: 1,
    World.zero_grad: 1,
    World.make_optimizer: 2,
    World.reload_optimizer: 1,
    World.freeze: 1,
    World.unfreeze_all: 1,
    World.hook: 1,
    World.convert: 3,
    World.move_again: 1,
    World.share: 1,
    World.there_and_back: 1,
    World.empty: 1,
    World.fill: 1,
    World.keep_graph: 1,
    World.deepcopy: 2,
    World.copy: 1,
    World.save_and_load: 1,
    World.of_class: 2,
    World.copy_one: 2,
    World.copy_state: 2,
    World.average: 1,
    World.keep_refs: 1,
    World.load: 2,
    World.load_own: 1,
    World.tie: 1,
    World.untie: 1,
    World.wrap_again: 1,
    World.data: 3,
    World.data_of_views: 1,
    World.write: 1,
    World.swap: 1,
    World.call_with_others: 1,
    World.parametrize: 2,
    World.unparametrize: 2,
}
NAMES = [event.__name__ for event in EVENTS]
# After these a tensor has another annotation than the tensor of that name had before, or none.
CHANGE = {"mark", "mark_buffer", "mark_all", "clear", "there_and_back", "tie", "untie", "swap"}
# Whether memory that several tensors share stays shared is another question, asked elsewhere.
APART = {"deepcopy", "save_and_load", "copy_state", "average", "there_and_back"}


def draft(seed):
    draw = random.Random(seed)
    events = draw.choices(NAMES, list(EVENTS.values()), k=draw.randrange(4, 14))
    start = draw.randrange(4)
    return Life(
        seed, draw.choice(MESHES), (("begin", start), *((e, draw.randrange(1000)) for e in events))
    )


def tensors(world):
    """All that a program can see, by name; None where there is nothing."""
    found = {}
    for name, tensor in (*world.named().items(), *world.net.named_buffers(remove_duplicate=False)):
        found[name] = tensor
        found[name + ".grad"] = tensor.grad if tensor.is_leaf else None
    for i, parameter in enumerate(p for g in world.optimizer.param_groups for p in g["params"]):
        found[f"optimizer.{i}"] = parameter
        for key, value in world.optimizer.state.get(parameter, {}).items():
            found[f"optimizer.{i}.{key}"] = value
    found.update({f"ref.{name}": tensor for name, tensor in world.refs.items()})
    return found


def ties(found):
    """Which names are one object, and which show one memory."""
    names = [n for n, t in found.items() if isinstance(t, torch.Tensor) and t.numel()]
    first_object, first_memory, objects, memory = {}, {}, {}, {}
    for name in names:
        tensor = found[name]
        objects[name] = first_object.setdefault(id(tensor), name)
        memory[name] = first_memory.setdefault(tensor.untyped_storage()._cdata, name)
    return objects, memory


def differences(ours, theirs):
    """What of two worlds' tensors differs, in words; empty where nothing does."""
    if ours.keys() != theirs.keys():
        return f"names: {sorted(ours.keys() ^ theirs.keys())}"
    for name, want in theirs.items():
        got = ours[name]
        if not isinstance(want, torch.Tensor):
            if got != want:
                return f"{name}: {got} instead of {want}"
            continue
        if not isinstance(got, torch.Tensor):
            return f"{name}: {got} instead of a tensor"
        for fact in ("dtype", "shape", "requires_grad", "is_leaf"):
            if getattr(got, fact) != getattr(want, fact):
                return f"{name}.{fact}: {getattr(got, fact)} instead of {getattr(want, fact)}"
        if plain_class(type(got)) is not type(want):
            return f"{name} is a {type(got).__name__} instead of a {type(want).__name__}"
        got, want = got.detach().cpu().double(), want.detach().double()
        largest = max([1.0, *want.abs().flatten().tolist()])
        if not torch.allclose(got, want, rtol=0, atol=TOLERANCE * largest):
            return f"{name}: {got} instead of {want}"
    for ours_tied, theirs_tied, what in zip(
        ties(ours), ties(theirs), ("objects", "memory"), strict=True
    ):
        if ours_tied != theirs_tied:
            name = next(n for n in theirs_tied if ours_tied[n] != theirs_tied[n])
            return f"{what}: {name} is {ours_tied[name]}, not {theirs_tied[name]}"
    return ""


def annotations(found):
    """By name, those of the module itself."""
    wanted = {n: t for n, t in found.items() if not n.startswith(("optimizer.", "ref."))}
    wanted = {n: t for n, t in wanted.items() if t is not None and not n.endswith(".grad")}
    return {n: _spec(t) for n, t in wanted.items()}


def _spec(tensor):
    annotation = spmdx.get_annotation(tensor)
    return None if annotation is None else tuple(annotation.spec)


def lost(before, after, event):
    """The name of a tensor that was annotated and is not any more, though the event keeps that."""
    if event in CHANGE:
        return ""
    kept = {n: s for n, s in before.items() if s is not None and n in after}
    return next((n for n, s in kept.items() if after[n] != s), "")


def judge(life, ours_as=World):
    """What is different or lost after some event of this life, in words; empty: nothing."""
    if spmdx.runtime.global_runtime_device_count() < 8:
        spmdx.runtime.set_device_count(8)
    size = 1
    for extent in life.mesh:
        size *= extent
    mesh = spmdx.Mesh(range(size), life.mesh, tuple("xy"[: len(life.mesh)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = ours_as("cpu", None), World("cpu", None)
        ours.mesh = mesh
        marks = {}
        for event, n in life.events:
            if event in APART and shares_memory(theirs):
                continue
            said = ""
            for world, device in ((theirs, "cpu"), (ours, "spmdx")):
                world.device = device
                try:
                    getattr(world, event)(n)
                except Exception as error:  # compared: both raise, or none does
                    said += f"{device}: {type(error).__name__}: {error}\n"
            if said:
                return (
                    ""
                    if said.count("\n") > 1 and "cpu:" in said and "spmdx:" in said
                    else f"after {event} {n}: {said}"
                )
            found = tensors(ours)
            if wrong := differences(found, tensors(theirs)):
                return f"after {event} {n}: {wrong}"
            now = annotations(found)
            if name := lost(marks, now, event):
                return f"after {event} {n}: {name} was {marks[name]} and is {now[name]}"
            marks = now
    return ""


def shares_memory(world):
    objects, memory = ties({n: t for n, t in tensors(world).items() if not n.startswith("ref.")})
    return any(memory[n] != n and objects[n] == n for n in objects)


def shrink(life):
    """A shorter life with the same kind of end, and what is wrong with it."""
    wrong = judge(life)
    i = 1
    while i < len(life.events):
        shorter = dataclasses.replace(life, events=life.events[:i] + life.events[i + 1 :])
        if found := judge(shorter):
            life, wrong = shorter, found
        else:
            i += 1
    return life, wrong


if __name__ == "__main__":
    import sys

    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    bad = 0
    for seed in range(first, first + count):
        if wrong := judge(draft(seed)):
            bad += 1
            small, said = shrink(draft(seed))
            print(small, said, sep="\n", flush=True)
    print(f"{bad} of {count} lives differ")
