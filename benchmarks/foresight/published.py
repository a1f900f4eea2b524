# SPDX-License-Identifier: Apache-2.0
"""What others measured, each table with where it was published, as their papers have it."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import llamas
from megatron import PLAN, VOCABULARY, Shape
from spmdx.auto import Strategy


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: of the model, by its parameters.
        shape, strategy: what ran, and how.
        samples: sequences of a step.
        seconds: a step took.
        figure: that was published, of which more is faster.
    """

    name: str
    shape: Any
    strategy: Strategy
    samples: int
    seconds: float
    figure: float


def _piped(data, model, pipe, samples, of_microbatch, chunks, sequence=False):
    schedule = "" if pipe == 1 else f"interleaved:{chunks}" if chunks > 1 else "1f1b"
    return Strategy(
        data=data,
        model=model,
        pipe=pipe,
        microbatches=samples // data // of_microbatch,
        schedule=schedule,
        chunks=chunks,
        plan=PLAN if model > 1 else {},
        sequence=sequence and model > 1,
    )


def operations(shape, samples):
    """Of a step, by the formula of arXiv:2104.04473, with layers computed again."""
    s, h, layers = shape.context, shape.width, shape.layers
    more = 1 + s / (6 * h) + VOCABULARY / (16 * layers * h)
    return 96 * samples * s * layers * h * h * more


def megatron_2021():
    """D. Narayanan et al., arXiv:2104.04473, Table 1; sizes of microbatches and chunks as in
    Megatron-LM's examples/sc21/run_table_1.sh."""
    # billions, width, layers, heads, tensor, pipe, devices, batch, microbatch, chunks, TFLOP/s
    table = [
        ("1.7B", 2304, 24, 24, 1, 1, 32, 512, 16, 1, 137),
        ("3.6B", 3072, 30, 32, 2, 1, 64, 512, 16, 1, 138),
        ("7.5B", 4096, 36, 32, 4, 1, 128, 512, 16, 1, 142),
        ("18.4B", 6144, 40, 48, 8, 1, 256, 1024, 8, 1, 135),
        ("39.1B", 8192, 48, 64, 8, 2, 512, 1536, 4, 1, 138),
        ("76.1B", 10240, 60, 80, 8, 4, 1024, 1792, 2, 3, 140),
        ("145.6B", 12288, 80, 96, 8, 8, 1536, 2304, 2, 2, 148),
        ("310.1B", 16384, 96, 128, 8, 16, 1920, 2160, 1, 2, 155),
        ("529.6B", 20480, 105, 128, 8, 35, 2520, 2520, 1, 3, 163),
        ("1008.0B", 25600, 128, 160, 8, 64, 3072, 3072, 1, 1, 163),
    ]
    rows = []
    for name, width, layers, heads, model, pipe, devices, samples, size, chunks, rate in table:
        shape = Shape(width, layers, heads)
        strategy = _piped(devices // model // pipe, model, pipe, samples, size, chunks)
        seconds = operations(shape, samples) / (devices * rate * 1e12)
        rows.append(Row(name, shape, strategy, samples, seconds, rate))
    return rows


def megatron_2022():
    """V. Korthikanti et al., arXiv:2205.05198, Table 5: all layers computed again; and sequence
    parallelism, with scores of attention computed again."""
    # name, width, layers, heads, tensor, pipe, batch, microbatch, chunks, full s, selective s
    table = [
        ("22B", 6144, 48, 64, 8, 1, 4, 4, 1, 1.42, 1.10),
        ("175B", 12288, 96, 96, 8, 8, 64, 1, 3, 18.13, 13.75),
        ("530B", 20480, 105, 128, 8, 35, 280, 1, 3, 49.05, 37.83),
        ("1T", 25600, 128, 160, 8, 64, 512, 1, 1, 94.42, 71.49),
    ]
    rows = []
    for name, width, layers, heads, model, pipe, samples, size, chunks, full, selective in table:
        for how, seconds in (("full", full), ("selective", selective)):
            shape = Shape(width, layers, heads, recompute=how, sequence=how == "selective")
            strategy = _piped(1, model, pipe, samples, size, chunks, how == "selective")
            rate = operations(shape, samples) / (model * pipe * seconds * 1e12)
            rows.append(Row(f"{name}, {how}", shape, strategy, samples, seconds, rate))
    return rows


def llama_3():
    """A. Dubey et al., arXiv:2407.21783, Table 4: 16 million tokens a step, nothing computed again.
    Their operations are those of a step without masked scores."""
    rows, tokens = [], 2**24
    for devices, length, context, rate in (
        (8192, 8192, 1, 430),
        (16384, 8192, 1, 400),
        (16384, 131072, 16, 380),
    ):
        config, samples = dataclasses.replace(llamas.LARGE, context=length), tokens // length
        per_token = 6 * 405e9 + 6 * config.layers * config.width * length
        data = devices // (128 * context)
        strategy = Strategy(
            data=data,
            model=8,
            pipe=16,
            microbatches=samples // data,
            zero=1,
            schedule="interleaved:8",
            chunks=8,
            plan=llamas.PLAN,
            sequence=True,
            context=context,
        )
        seconds = per_token * tokens / (devices * rate * 1e12)
        name = f"{devices:,} devices" + (f", {length:,} tokens" if context > 1 else "")
        rows.append(Row(name, config, strategy, samples, seconds, rate))
    return rows


def torchtitan():
    """benchmarks/llama3_h100_202412_torchtitan.md of pytorch/torchtitan, Tables 1 and 3, FSDP
    without compilation: two sequences a device, checkpointed selectively."""
    config, rows = llamas.SMALL, []
    for devices, tokens in ((8, 5762), (128, 5605)):
        strategy = Strategy(data=devices, zero=3)
        seconds = 2 * config.context / tokens
        rows.append(Row(f"{devices} devices", config, strategy, 2 * devices, seconds, tokens))
    return rows
