# SPDX-License-Identifier: Apache-2.0
"""Compiles six models' training for absent chips: ``python tests/hardware/ahead.py v5e:2x2 metal``.

Each model is trained for two steps through ``xla``, and its segments are compiled. Of a TPU it
tells XLA's count of the bytes of inputs and outputs beside what spmdx predicts, which segments are
within 15 % of it, and the bytes that XLA needs beside them while a segment runs. ``--wide`` makes
their tensors no narrower than a TPU's registers.
"""

import argparse
import collections
import dataclasses
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
    Experts,
    Gated,
    Language,
    RmsNorm,
    Trained,
    UNet,
    Vision,
    of_words,
    perceptron,
    resnet,
    train,
)

TARGETS = (
    *("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"),
    *("rocm:gfx942", "vulkan:rdna3", "metal", "cuda:sm_89"),
)
WIDTH = 512


def _tokens():
    tokens = torch.randint(WIDTH, (8, 16))
    return tokens, tokens


def _language(norm, mlp, rotates=False):
    def block():
        return Block(norm, Attention(WIDTH, 4, True, rotates), mlp(), WIDTH)

    return Trained(lambda: Language(block, WIDTH, WIDTH), _tokens, of_words)


# The same models with tensors that are no narrower than a TPU's registers.
WIDE = {
    "gpt": _language(nn.LayerNorm, lambda: perceptron(WIDTH, 4 * WIDTH)),
    "llama": _language(RmsNorm, lambda: Gated(WIDTH, 2 * WIDTH), True),
    "moe": _language(nn.LayerNorm, lambda: Experts(WIDTH, WIDTH, 4)),
    "vit": dataclasses.replace(MODELS["vit"], model=lambda: Vision(WIDTH, 4 * WIDTH)),
    "resnet": dataclasses.replace(MODELS["resnet"], model=lambda: resnet(128)),
    "unet": dataclasses.replace(MODELS["unet"], model=lambda: UNet(128)),
}


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
    span = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
    counted = f"  bytes are {span} of ours, {near(ratios)}" if ratios else ""
    whole = [
        (found + row.temp_bytes) / predicted
        for row, (found, predicted) in zip(report.rows, told, strict=True)
        if found
    ]
    beside = sum(row.temp_bytes for row in report.rows) / max(1, sum(found for found, _ in told))
    return f"{words}{counted}, with {beside:.2f} of them beside {near(whole)}  {seconds:.0f} s"


def near(ratios: list[float]) -> str:
    """How many of them are."""
    return f"{sum(abs(ratio - 1) <= 0.15 for ratio in ratios)} of {len(ratios)} near"


def main() -> int:
    """1 if a segment was refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, help="as v5e:2x2 or rocm:gfx942")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--wide", action="store_true", help="of width 512, or of 128 channels")
    parser.add_argument("--places", nargs="+", default=["one"], choices=PLACES)
    asked = parser.parse_args()
    MODELS.update(WIDE if asked.wide else {})
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
