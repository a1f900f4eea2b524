# SPDX-License-Identifier: Apache-2.0
"""Trains six models through a compiler: ``python tests/hardware/train.py xla --models gpt vit``.

Losses and gradients are compared with those of PyTorch's kernels on the same mesh, by how far both
are from what PyTorch computes in f64.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import sys
import tempfile
import time
import warnings

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import spmdx  # noqa: E402
import torch  # noqa: E402
from spmdx.compilers import Compiler  # noqa: E402
from trained_models import MODELS, PLACES, STEPS, train  # noqa: E402

TIMES = 10  # of the rounding of PyTorch's kernels


@dataclasses.dataclass(frozen=True)
class Trial:
    """What came of one model on one mesh.

    Attributes:
        worst: of losses and gradients, how far they are off, in units of what may be.
        ops: the share of op calls in compiled segments.
        flops: the same of floating-point operations.
        states: of segments, how many are in each.
        said: warnings.
        seconds: of the run with the compiler.
    """

    worst: float
    ops: float
    flops: float
    states: dict[str, int]
    said: tuple[str, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Nothing is wrong, and most is compiled."""
        return self.worst <= 1 and self.ops >= 0.8 and self.flops >= 0.9 and not self.said


def trial(compiler: str | Compiler, name: str, place: str, steps: int = STEPS) -> Trial:
    """Trains in f64 by PyTorch, in f32 by its kernels, and in f32 by the compiler's."""
    exact = train(name, None, torch.float64, steps)
    usual = train(name, place, steps=steps)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spmdx.set_compiler(compiler, compile_now=True)
        try:
            found = train(name, place, steps=steps)
            segments = spmdx.explain().segments
        finally:
            spmdx.set_compiler(None)
    states = collections.Counter(segment.state for segment in segments.segments)
    return Trial(
        _worst(found, usual, exact),
        segments.compiled_ops,
        segments.compiled_flops,
        dict(states),
        tuple(str(warning.message) for warning in caught),
        time.perf_counter() - began,
    )


def _worst(found, usual, exact) -> float:
    pairs = [(torch.tensor(found[0]), torch.tensor(usual[0]), torch.tensor(exact[0]))]
    pairs += list(zip(found[1], usual[1], exact[1], strict=True))
    worst = 0.0
    for mine, theirs, true in pairs:
        may = TIMES * (theirs - true).abs().max() + 1e-6 * true.abs().max() + 1e-9
        off = (mine - true).abs().max() / may
        worst = max(worst, float("inf") if off.isnan() else off.item())
    return worst


def main() -> int:
    """1 if one of them does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiler", help=f"one of {spmdx.compilers.installed()}")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--places", nargs="+", default=list(PLACES), choices=PLACES)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--keep", action="store_true", help="use kernels that earlier runs made")
    asked = parser.parse_args()
    failed = 0
    spmdx.runtime.set_device_count(4)
    with tempfile.TemporaryDirectory() as folder:
        if not asked.keep:
            os.environ["SPMDX_CACHE"] = folder
        for name in asked.models:
            for place in asked.places:
                found = trial(asked.compiler, name, place, asked.steps)
                failed += not found.holds
                print(_line(name, place, found), flush=True)
                for line in found.said:
                    print(f"    {line}")
    return int(failed > 0)


def _line(name: str, place: str, found: Trial) -> str:
    states = ", ".join(f"{count} {state}" for state, count in found.states.items())
    verdict = "holds" if found.holds else "FAILS"
    return (
        f"{verdict}  {name:7} {place:16} ops {found.ops:6.1%}  flops {found.flops:6.1%}  "
        f"off {found.worst:.2f}  {found.seconds:5.1f} s  {states}"
    )


if __name__ == "__main__":
    sys.exit(main())
