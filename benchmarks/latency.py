# SPDX-License-Identifier: Apache-2.0
"""Latency of inference of BERT-base and of a small network, measured, predicted and published.

    OMP_NUM_THREADS=1 python benchmarks/latency.py [--batch 32] [--sequence 512] [--layers 12]
        [--networks bert mlp] [--compilers aten inductor xla iree onnxruntime] [--repeats 5]
        [--no-check] [--no-measuring] [--json FILE]

Measured is the time of a batch on one core of this machine, until its result is on the host: the
median of runs in which processes of one compiler each take turns, after all kernels have taken
over. "compiled" is the share of floating-point operations in kernels of the compiler. For a circuit
(hls) there are the cycles that its estimate says, and what they take at 100 MHz. Predicted is the
step that spmdx plans for a profile (docs/hardware.md), op by op, on a device that is not there.
"published" is what others measured of the same work in the same dtype; nothing is scaled, so that
those works have rows of their own. The ratio is predicted / published.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import spmdx  # noqa: E402
import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent / "latency"))
import networks  # noqa: E402
from measured import measured  # noqa: E402
from published import PUBLISHED  # noqa: E402

COMPILERS = ("aten", "inductor", "xla", "iree", "onnxruntime")
PROFILES = (
    *("v100-32", "a100-80", "h100-80", "tpu-v3", "tpu-v4", "tpu-v5e"),
    *("ascend-910", "ascend-910b", "stratix-10"),
)
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CLOCK = 100e6  # hertz: the latencies of operators are those at 10 ns
UNROLL = 4  # products that a stage of a circuit makes at once


def predicted(work, profile, dtype):
    """Milliseconds of a batch on a device of this profile."""
    spmdx.set_hardware(profile)
    try:
        with spmdx.plan_only(), torch.no_grad():
            with torch.device("spmdx"):
                network, x = networks.network(**work)
            network = network.to(DTYPES[dtype])
            x = x.to(DTYPES[dtype]) if x.is_floating_point() else x
            spmdx.mark_step()
            kept = network(x)  # what nobody holds is not planned
            spmdx.mark_step()
            step_ns = spmdx.explain().step_ns
            del kept
            return step_ns / 1e6
    finally:
        spmdx.set_hardware(None)


def dtypes_of(profile):
    """That it has a rate for: f32, and the first of f16 and bf16."""
    rates = spmdx.Hardware.named(profile).flops_per_second
    halves = [dtype for dtype in ("f16", "bf16") if dtype in rates]
    return ["f32"] * ("f32" in rates) + halves[:1]


def predictions(work):
    """Rows of all profiles for this work, and for the works of what was published."""
    rows = [row_of(work, profile, dtype) for profile in PROFILES for dtype in dtypes_of(profile)]
    for each in PUBLISHED if work["name"] == "bert" and work["layers"] == networks.LAYERS else ():
        same = work | {"batch": each.batch, "sequence": each.sequence}
        row = row_of(same, each.profile, each.dtype)
        row |= {"published_ms": each.ms, "published_by": f"{each.by}, {each.device}"}
        rows.append(row | {"ratio": row["ms"] / each.ms, "source": each.source})
    return rows


def row_of(work, profile, dtype):
    is_bert = work["name"] == "bert"
    found = is_bert and any(each.profile == profile for each in PUBLISHED)
    return {
        "network": work["name"],
        "batch": work["batch"],
        "sequence": work["sequence"] if is_bert else None,
        "layers": work["layers"] if is_bert else None,
        "device": profile,
        "by": "predicted",
        "dtype": dtype,
        "ms": predicted(work, profile, dtype),
        "published_by": "" if found else "none found",
    }


def circuit(work):
    """The row of a circuit, by its estimate; its run on a processor is no latency."""
    network, x = networks.network(**work)
    segment, weights = spmdx.compilers.segment_of(network, [x])
    with tempfile.TemporaryDirectory() as folder:
        made = spmdx.compilers.hls_project(
            segment, folder, constants=weights, inputs=[x], unroll=UNROLL
        )
    return {
        "network": work["name"],
        "batch": work["batch"],
        "device": "a circuit at 100 MHz",
        "by": "hls, estimated",
        "dtype": "f32",
        "ms": made.latency / CLOCK * 1e3,
        "cycles": made.latency,
        **{name: getattr(made, name) for name in ("interval", "dsp", "bram18", "lut", "ff")},
    }


def show(rows):
    """One table of all rows."""
    table = Table(title="Milliseconds of a batch", title_justify="left")
    numbers = ("ms", "compiled", "published", "ratio")
    for name in ("network", "device", "by", "dtype", *numbers, "published by"):
        table.add_column(name, justify="right" if name in numbers else "left")
    for row in rows:
        named = (row[name] for name in ("device", "by", "dtype"))
        table.add_row(work_of(row), *named, *cells(row), row.get("published_by", ""))
    Console(width=None if sys.stdout.isatty() else 130).print(table)
    for row in rows:
        if row.get("off"):
            print(f"{work_of(row)}, {row['by']}: results are off by {row['off']:.1e} from aten's")
        for line in row.get("said", ()):
            print(f"{work_of(row)}, {row['by']}: {line}")
    for source in dict.fromkeys(
        f"{r['published_by']}: {r['source']}" for r in rows if "source" in r
    ):
        print(source)


def work_of(row):
    return " × ".join(str(n) for n in (row["network"], row["batch"], row.get("sequence")) if n)


def cells(row):
    """Milliseconds, the share that is compiled, what was published, and the ratio."""
    return (
        f"{row['ms']:,.3g}" if row["ms"] < 100 else f"{row['ms']:,.0f}",
        f"{row['compiled_flops']:.1%}" if row.get("compiled_flops") else "",
        f"{row['published_ms']:.4g}" if "ratio" in row else "",
        f"{row['ratio']:.2f}" if "ratio" in row else "",
    )


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=512, help="of BERT")
    parser.add_argument("--layers", type=int, default=networks.LAYERS, help="of BERT")
    parser.add_argument("--networks", nargs="+", choices=("bert", "mlp"), default=["bert", "mlp"])
    parser.add_argument("--compilers", nargs="+", choices=COMPILERS, default=list(COMPILERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-check", action="store_true", help="kernels are not compared first")
    parser.add_argument("--no-measuring", action="store_true", help="only what is predicted")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    return parser.parse_args()


def main():
    options = parsed()
    rows = []
    for name in options.networks:
        sizes = {"batch": options.batch, "sequence": options.sequence, "layers": options.layers}
        work = {"name": name, **sizes}
        if not options.no_measuring:
            rows += measured(options.compilers, options.repeats, not options.no_check, work)
        if name == "mlp":
            rows.append(circuit(work))
        rows += predictions(work)
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
