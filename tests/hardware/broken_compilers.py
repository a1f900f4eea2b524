# SPDX-License-Identifier: Apache-2.0
"""Compilers of which each is broken in one way, and one that is right: the battery tells them."""

import time

import torch
from compilers_of_tests import OpByOp
from spmdx.compilers import graph_module


class IsRight(OpByOp):
    """PyTorch's kernels, whose results are memory of their own."""

    def load(self, segment, folder):
        module = graph_module(segment)

        def run(tensors):
            return self.changed([t.clone() for t in module(*self.taken(segment, tensors))])

        return run

    def taken(self, segment, tensors):
        return tensors

    def changed(self, results):
        return results


class IsAThousandthOff(IsRight):
    def changed(self, results):
        return [t * (1 + 1e-3) if t.is_floating_point() else t for t in results]


class IsOffByOne(IsRight):
    """Of what it counts."""

    def changed(self, results):
        return [t + 1 if t.dtype == torch.int64 else t for t in results]


class LosesNan(IsRight):
    def changed(self, results):
        return [t.where(~t.isnan(), t.new_zeros(())) for t in results]


class LosesSigns(IsRight):
    """Of zeros."""

    def changed(self, results):
        return [t + 0.0 if t.is_floating_point() else t for t in results]


class GivesDoubles(IsRight):
    def changed(self, results):
        return [t.double() if t.is_floating_point() else t for t in results]


class GivesRows(IsRight):
    """Scalars as tensors of one number."""

    def changed(self, results):
        return [t.reshape(1) if t.dim() == 0 else t for t in results]


class FailsForNothing(IsRight):
    """For tensors without numbers."""

    def taken(self, segment, tensors):
        if any(t.numel() == 0 for t in tensors):
            raise RuntimeError("a buffer of no bytes")
        return tensors


class WritesToInputs(IsRight):
    def taken(self, segment, tensors):
        before = [t.clone() for t in tensors]
        for tensor in tensors:
            tensor.fill_(1)
        return before


class GivesMemoryTwice(IsRight):
    def load(self, segment, folder):
        run, kept = super().load(segment, folder), []

        def again(tensors):
            made = run(tensors)
            if not kept:
                kept.extend(made)
            return [old.copy_(new) for old, new in zip(kept, made, strict=True)]

        return again


class KeepsMemory(IsRight):
    def __init__(self):
        super().__init__()
        self.kept = []

    def changed(self, results):
        self.kept += [t.clone() for t in results]
        return results


class KeepsParams(IsRight):
    """Those of the first run."""

    def load(self, segment, folder):
        run, first = super().load(segment, folder), []

        def with_first(tensors):
            at = len(segment.inputs)
            if not first:
                first.extend(t.clone() for t in tensors[at:])
            return run([*tensors[:at], *first])

        return with_first


class IsForOneThread(IsRight):
    """Leaves its inputs where other threads leave theirs."""

    def load(self, segment, folder):
        run, held = super().load(segment, folder), [None]

        def through_held(tensors):
            held[0] = tensors
            time.sleep(0.01)
            return run(held[0])

        return through_held


class ClaimsRandom(IsRight):
    def ops(self, known):
        return [*super().ops(known), "aten.bernoulli"]


class RefusesGelu(IsRight):
    def compile(self, segment, folder):
        if "aten.gelu(" in segment.text:
            raise NotImplementedError("no gelu on this chip")
        super().compile(segment, folder)


class RaisesForGelu(IsRight):
    """When it runs."""

    def taken(self, segment, tensors):
        if "aten.gelu(" in segment.text:
            raise RuntimeError("the chip is on fire")
        return tensors


class DropsResults(IsRight):
    def changed(self, results):
        return results[:-1]
