# SPDX-License-Identifier: Apache-2.0
"""Compiles six models' training for absent chips: ``python tests/hardware/ahead.py v5e:2x2 metal``.

Each model is trained for two steps through ``xla``, and its segments are compiled. Of a TPU it
tells XLA's count of the bytes of inputs and outputs beside what spmdx predicts, which segments are
within 15 % of it, and the bytes that XLA needs beside them while a segment runs. ``--models wide``
is a GPT whose tensors are no narrower than a TPU's registers.
"""

import argparse
import collections
import os
import pathlib
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

import spmdx  # noqa: E402
import torch  # noqa: E402
from spmdx.compilers import AheadReport, compile_ahead  # noqa: E402
from torch import nn  # noqa: E402
from trained_models import (  # noqa: E402
    MODELS,
    PLACES,
    Attention,
    Block,
    Language,
    Trained,
    of_words,
    train,
)

TARGETS = (
    *("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"),
    *("rocm:gfx942", "vulkan:rdna3", "metal", "cuda:sm_89"),
)
WIDTH, WORDS = 512, 512


def _block():
    mlp = nn.Sequential(nn.Linear(WIDTH, 2048), nn.GELU(), nn.Linear(2048, WIDTH))
    return Block(nn.LayerNorm, Attention(WIDTH, 4, True), mlp, WIDTH)


def _tokens():
    tokens = torch.randint(WORDS, (8, 16))
    return tokens, tokens


WIDE = Trained(lambda: Language(_block, WIDTH, WORDS), _tokens, of_words)


def segments(name: str, place: str):
    """What training two steps through ``xla`` was cut into."""
    spmdx.set_compiler("xla", compile_now=True)
    try:
        train(name, place, steps=2)
        return spmdx.explain().segments
    finally:
        spmdx.set_compiler(None)


def line(name: str, place: str, report: AheadReport, seconds: float) -> str:
    """What came of one target."""
    words = f"{name:7} {place:16} {report.target:13} {report.taken:6.1%} of {len(report.rows)}"
    told = [(row.argument_bytes + row.output_bytes, row.tiled_bytes) for row in report.rows]
    ratios = [found / predicted for found, predicted in told if found]
    near = sum(abs(ratio - 1) <= 0.15 for ratio in ratios)
    span = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
    counted = f"  bytes are {span} of ours, {near} of {len(ratios)} near" if ratios else ""
    beside = sum(row.temp_bytes for row in report.rows) / max(1, sum(found for found, _ in told))
    return f"{words}{counted}, {beside:.2f} of them beside  {seconds:.0f} s"


def main() -> int:
    """1 if a segment was refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, help="as v5e:2x2 or rocm:gfx942")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=[*MODELS, "wide"])
    parser.add_argument("--places", nargs="+", default=["one"], choices=PLACES)
    asked = parser.parse_args()
    MODELS["wide"] = WIDE
    spmdx.runtime.set_device_count(4)
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPMDX_CACHE"] = folder
        for name in asked.models:
            for place in asked.places:
                found = segments(name, place)
                for target in asked.targets:
                    began = time.perf_counter()
                    report = compile_ahead(target, found)
                    print(line(name, place, report, time.perf_counter() - began), flush=True)
                    why = collections.Counter(row.why for row in report.rows if row.why)
                    refused += why.total()
                    for said, times in why.items():
                        print(f"    {times} times: {said}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
