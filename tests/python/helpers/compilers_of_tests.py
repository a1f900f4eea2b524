# SPDX-License-Identifier: Apache-2.0
"""Compilers that need none: segments are modules that PyTorch runs op by op; some are broken."""

import os
import pathlib
import sys
import time

import spmdx
import torch
from spmdx.compilers import Compiler, NotTaken, graph_module


class OpByOp(Compiler):
    """Notes in a file what it compiles; what it gives is what PyTorch's kernels give."""

    name = "op by op"
    ops_with_params = frozenset({"aten.add.Scalar", "aten.mul.Scalar", "aten.sub.Scalar"})

    def __init__(self, notes: pathlib.Path | None = None, left_alone: tuple[str, ...] = ()) -> None:
        self.notes, self.left_alone = notes, left_alone

    def ops(self, known):
        left_alone = ("spmdx.", *self.left_alone)
        return [name for name in known if not name.startswith(left_alone) and not is_random(name)]

    def compile(self, segment, folder):
        (folder / "segment.txt").write_text(segment.text)
        if self.notes:
            with self.notes.open("a") as notes:
                notes.write(f"{len(segment.ops)}\n")

    def load(self, segment, folder):
        assert (folder / "segment.txt").read_text() == segment.text
        module = graph_module(segment)
        return lambda tensors: module(*tensors)


def is_random(name):
    packet, *overload = name.removeprefix("aten.").split(".")
    op = getattr(getattr(torch.ops.aten, packet), overload[0] if overload else "default")
    return torch.Tag.nondeterministic_seeded in op.tags


class Raises(OpByOp):
    def compile(self, segment, folder):
        raise NotImplementedError("no such instruction")


class Dies(OpByOp):
    def compile(self, segment, folder):
        os._exit(7)


class Hangs(OpByOp):
    def compile(self, segment, folder):
        time.sleep(60)


class LeavesGelu(OpByOp):
    """Which it finds out when it sees one."""

    def compile(self, segment, folder):
        reasons = {i: "no table" for i, op in enumerate(segment.ops) if op.name == "aten.gelu"}
        if reasons:
            raise NotTaken(reasons)
        super().compile(segment, folder)


class LeavesWhatIsNotThere(OpByOp):
    def compile(self, segment, folder):
        raise NotTaken({len(segment.ops): "no such op"})


class IsWrong(OpByOp):
    def load(self, segment, folder):
        module = graph_module(segment)
        return lambda tensors: [t + 0.5 if t.is_floating_point() else t for t in module(*tensors)]


class WritesOverInputs(OpByOp):
    """Once it is done: what it gives is right."""

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            results = [result.clone() for result in module(*tensors)]
            for tensor in tensors:
                tensor.zero_()
            return results

        return run


class KeepsItsResults(OpByOp):
    """And gives every run the same memory."""

    def load(self, segment, folder):
        module = graph_module(segment)
        kept = []

        def run(tensors):
            results = module(*tensors)
            kept[len(kept) :] = [result.clone() for result in results[len(kept) :]]
            return [mine.copy_(result) for mine, result in zip(kept, results, strict=True)]

        return run


class KeepsArrays(OpByOp):
    """As the one above; tensors that NumPy made do not know of each other."""

    def load(self, segment, folder):
        module = graph_module(segment)
        kept = {}

        def run(tensors):
            results = enumerate(module(*tensors))
            for i, result in results:
                kept.setdefault(i, result.numpy().copy())[...] = result.numpy()
            return [torch.from_numpy(kept[i]) for i in sorted(kept)]

        return run


class GivesOneTwice(OpByOp):
    """Results that equal an input or another result are its array, which PyTorch does not know."""

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            results = [result.clone() for result in module(*tensors)]
            known = list(tensors)
            for result in results:
                alike = [each for each in known if torch.equal(each, result)]
                known.append(torch.from_numpy((alike or [result])[0].numpy()))
            return known[len(tensors) :]

        return run


class CountsRuns(OpByOp):
    runs = 0

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            CountsRuns.runs += 1
            return module(*tensors)

        return run


class LoadsNothing(OpByOp):
    def load(self, segment, folder):
        return None


class IsInterrupted(OpByOp):
    def load(self, segment, folder):
        raise KeyboardInterrupt


class LeavesNoOp(OpByOp):
    def compile(self, segment, folder):
        raise NotTaken({})


class LeavesHalfAnOp(OpByOp):
    def compile(self, segment, folder):
        raise NotTaken({0.5: "half"})


class GivesOthers(OpByOp):
    def load(self, segment, folder):
        return lambda tensors: [torch.ones(7)]


class GivesElsewhere(OpByOp):
    def load(self, segment, folder):
        module = graph_module(segment)
        return lambda tensors: [result.to("meta") for result in module(*tensors)]


class GivesNone(OpByOp):
    def load(self, segment, folder):
        return lambda tensors: None


class GivesSparse(OpByOp):
    def load(self, segment, folder):
        module = graph_module(segment)
        return lambda tensors: [t.to_sparse() for t in module(*tensors)]


class RaisesAtRun(OpByOp):
    def load(self, segment, folder):
        return self._run

    def _run(self, tensors):
        raise RuntimeError("the chip is on fire")


class ReadsTheDevice(OpByOp):
    """What it reads is computed by a step of its own, behind the one that it is part of."""

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            factor = torch.ones(3).to("spmdx").sum().item() / 3
            return [result * factor for result in module(*tensors)]

        return run


class Syncs(OpByOp):
    """And waits for all steps."""

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            spmdx.sync(wait=True)
            return list(module(*tensors))

        return run


class KnowsNoOps(OpByOp):
    def ops(self, known):
        raise ImportError("no module named 'vendor'. Install vendor-sdk")


class SaysAndDies(OpByOp):
    def compile(self, segment, folder):
        print("no licence for this chip", file=sys.stderr, flush=True)
        os._exit(7)


class IsOffByASixteenth(OpByOp):
    """Of what is largest."""

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            results = module(*tensors)
            return [t + t.abs().max() / 16 if t.is_floating_point() else t for t in results]

        return run


class RoundsOtherwise(OpByOp):
    """Keeps twice as many digits within a segment."""

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            wide = [t.double() if t.is_floating_point() else t for t in tensors]
            return [t.float() if t.is_floating_point() else t for t in module(*wide)]

        return run
