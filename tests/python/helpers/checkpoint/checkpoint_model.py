# SPDX-License-Identifier: Apache-2.0
"""Random states, saved by some processes with some layouts, come back in others bit for bit.

Threads stand in for the processes that save. Run by itself it tries more:
python tests/python/helpers/checkpoint/checkpoint_model.py --count 1000
"""

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import threading
import unittest.mock
import warnings
from functools import partial
from pathlib import Path

import spmdx
import torch
from checkpoints import MESHES, Meeting, bits, held_by, in_threads, mesh_of
from spmdx._checkpoint import agree as checkpoint_agree
from spmdx._checkpoint import save as checkpoint_save
from spmdx._checkpoint import together
from spmdx._checkpoint.format import boxes as checkpoint_boxes
from spmdx._checkpoint.format import folder as checkpoint_folder

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
OPTIMIZERS = (
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    lambda p: torch.optim.Adam([{"params": p[:1], "lr": 0.1}, {"params": p[1:]}]),
    lambda p: torch.optim.Adagrad(p, lr=0.01),
)
VALUES = (None, 7, -(2**70), 0.5, float("inf"), "text", "", True, (1, "x"), [1, [2, None]], [], 1j)
local = threading.local()


class Processes:
    """Threads that play processes of as many devices each: they see the data of their own."""

    def __init__(self, count, each):
        self.count, self.each = count, each
        self._meeting = Meeting(count)

    @contextlib.contextmanager
    def playing(self):
        with contextlib.ExitStack() as stack:
            put = lambda module, name, value: stack.enter_context(  # noqa: E731
                unittest.mock.patch.object(module, name, value)
            )
            put(checkpoint_boxes, "_held", held_by(self.each, lambda: local.process))
            put(checkpoint_boxes, "own_count", lambda: self.each)
            for module in checkpoint_boxes, checkpoint_save, checkpoint_folder:
                put(module, "process_index", lambda: local.process)
            for module in checkpoint_boxes, checkpoint_save, checkpoint_agree, together:
                put(module, "process_count", lambda: self.count)
            yield

    def run(self, work):
        """What ``work(process, exchange)`` gives in each process; one after the other settles."""
        results = [None] * self.count

        def play(process):
            local.process = process
            try:
                results[process] = work(process, partial(self._meeting.exchange, process))
            except Exception as error:
                self._meeting.met.abort()
                results[process] = error

        with self.playing():
            in_threads(play, range(self.count))
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


def elements(draw, shape, dtype):
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return (torch.randn(shape, generator=generator) * 3).to(dtype)
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


def a_shape(draw):
    dims = draw.choice((0, 1, 1, 2, 2, 2, 3))
    return tuple(draw.choice((1, 2, 3, 5, 7, 8, 12)) for _ in range(dims))


def a_tensor(draw):
    """A plan: kind of placing, shape, dtype and what makes the elements."""
    shape = a_shape(draw)
    if draw.random() < 0.05:
        shape = (*shape, 0)
    kind = draw.choice(
        ("cpu", "cpu view", "device", "device", "marked", "marked", "marked", "view")
    )
    return {
        "kind": kind,
        "shape": shape,
        "dtype": draw.choice(DTYPES[:-2] if kind == "view" else DTYPES),
        "seed": draw.randrange(2**31),
    }


def a_plan(draw, depth=0):
    """What the state is: dicts, lists, tensors, values, an optimizer; the same for both sides."""
    result = {}
    for i in range(draw.randint(1, 4 if depth else 7)):
        key = draw.choice((f"k{i}", f"with space {i}", i, f"ä{i}", f"deep.er{i}"))
        roll = draw.random()
        if roll < 0.15 and depth < 3:
            result[key] = a_plan(draw, depth + 1)
        elif roll < 0.25 and depth < 3:
            result[key] = [a_plan(draw, depth + 1) for _ in range(draw.randint(1, 3))]
        elif roll < 0.4:
            result[key] = ("value", draw.choice(VALUES))
        elif roll < 0.5 and depth == 0:
            result[key] = ("run", draw.randrange(len(OPTIMIZERS)), draw.randrange(3))
        elif roll < 0.55:
            result[key] = ("tied", a_tensor(draw))
        else:
            result[key] = ("tensor", a_tensor(draw))
    return result


def spec_for(draw, shape):
    """A spec of axes a and b, each at most once."""
    free, spec = ["a", "b"], []
    for _ in shape:
        entry = draw.choice(
            (None, None, *free, *([tuple(free), tuple(free[::-1])] * (len(free) > 1)))
        )
        free = [axis for axis in free if axis != entry and axis not in (entry or ())]
        spec.append(entry)
    return tuple(spec)


class Side:
    """Makes the state of a plan, with the elements that were drawn or with other ones."""

    def __init__(self, draw, meshes, blank):
        self._draw, self._meshes, self._blank = draw, meshes, blank

    def state(self, plan):
        items = list(plan.items())
        return {key: self._of(value) for key, value in items}

    def _of(self, plan):
        if isinstance(plan, dict):
            return self.state(plan)
        if isinstance(plan, list):
            return [self.state(part) for part in plan]
        if plan[0] == "value":
            return 0 if self._blank else plan[1]
        if plan[0] == "run":
            return self._run(*plan[1:])
        if plan[0] == "tied":
            tensor = self._tensor(plan[1])
            return {"one": tensor, "other": tensor}
        return self._tensor(plan[1])

    def _mark(self, tensor, devices=None):
        mesh = mesh_of(devices or self._draw.choice(self._meshes))
        return spmdx.mark_sharding(tensor, mesh, spec_for(self._draw, tensor.shape))

    def _tensor(self, plan):
        values = elements(random.Random(plan["seed"]), plan["shape"], plan["dtype"])
        values = torch.zeros_like(values) if self._blank else values
        if plan["kind"] == "cpu":
            return values
        if plan["kind"] == "cpu view" and values.dim():
            wide = torch.zeros(*values.shape[:-1], values.shape[-1] + 3, dtype=values.dtype)
            wide[..., 1:-2] = values
            return wide[..., 1:-2]
        if plan["kind"] == "view" and values.dim():
            wide = torch.cat([values, values], 0).to("spmdx")
            part = self._mark(wide)[: values.shape[0]]
            spmdx.mark_step()  # a step has one mesh
            return part
        there = values.to("spmdx")
        return self._mark(there) if plan["kind"] == "marked" else there

    def _run(self, which, steps):
        """A model and its optimizer, before its first step or after some."""
        torch.manual_seed(self._draw.randrange(2**31) if self._blank else which)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)).to("spmdx")
        devices = self._draw.choice(self._meshes)
        for parameter in list(model.parameters()):
            if self._draw.random() < 0.5:
                self._mark(parameter, devices)
        optimizer = OPTIMIZERS[which](list(model.parameters()))
        for _ in range(0 if self._blank else steps):
            model(torch.ones(4, 5).to("spmdx")).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        spmdx.mark_step()
        return {"model": model, "optimizer": optimizer}


def contents(value):
    """Everything in a state as something that == compares, bits of tensors included."""
    if isinstance(value, torch.Tensor):
        return bits(value)
    if isinstance(value, dict):
        return {str(key): contents(part) for key, part in value.items()}
    if hasattr(value, "state_dict"):
        return contents(value.state_dict())
    if isinstance(value, list | tuple):
        return [contents(part) for part in value]
    return [type(value).__name__, repr(value)]


def shuffled(draw, state):
    """The same entries in dicts of another order."""
    if isinstance(state, dict):
        items = [(key, shuffled(draw, value)) for key, value in state.items()]
        draw.shuffle(items)
        return dict(items)
    return [shuffled(draw, part) for part in state] if isinstance(state, list) else state


def save(draw, state, path):
    count = draw.choice((1, 2, 3, 4))
    if count == 1:
        way = draw.choice((spmdx.checkpoint.save, spmdx.checkpoint.async_save))
        saving = way(state, path)
        return saving if saving is None else saving.result()
    processes = Processes(count, 8 // count + (8 % count > 0))
    states = [shuffled(draw, state) for _ in range(count)]
    turn = threading.Lock()  # what makes tensors is one program here

    def one(process, exchange):
        def unlocked(value):
            turn.release()
            try:
                return exchange(value)
            finally:
                turn.acquire()

        with turn:
            taken = checkpoint_save.snapshot(states[process], draw.random() < 0.5, unlocked)
            checkpoint_save.write(taken, path, unlocked)

    processes.run(one)


def trial(seed, folder):
    """What is wrong with one random state, saved and loaded; empty if nothing is."""
    draw = random.Random(seed)
    plan, path = a_plan(draw), folder / str(seed)
    state = Side(draw, list(MESHES), False).state(plan)
    expected = contents(state)
    save(draw, state, path)
    target = shuffled(draw, Side(draw, list(MESHES), True).state(plan))
    spmdx.checkpoint.load(target, path)
    wrong = "" if contents(target) == expected else f"seed {seed}: other values"
    if contents(state) != expected:
        wrong = f"seed {seed}: the save changed the state"
    shutil.rmtree(path)
    return wrong


def trials(count, folder, first=0):
    """What is wrong with each of ``count`` states."""
    wrong = []
    for seed in range(first, first + count):
        try:
            wrong.append(trial(seed, folder))
        except Exception as error:
            wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
    return list(filter(None, wrong))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="states")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    spmdx.runtime.set_device_count(8)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    wrong = trials(options.count, folder, options.first)
    shutil.rmtree(folder)
    print(f"{options.count} states, {len(wrong)} wrong", *wrong[:20], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
