# SPDX-License-Identifier: Apache-2.0
"""What a step was predicted to take, beside what it took, in the modes of the example.

    python benchmarks/predicted.py [--tiny] [--steps 5] [--no-calibration] [--json figures.json]

The cost model is that of this machine, measured first. All devices are virtual ones of this
process, so they run one after the other: "one device" is the longest shard of each op, which is
what is predicted; "this process" is all of them, and "step" the whole from call to result.
"""

import argparse
import json
import sys
from pathlib import Path

import spmdx
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from train_gpt import GPT, MODES, Config, annotate, make_mesh  # noqa: E402

DEVICES, BATCH = 8, 16


def stepper(mode, config):
    """One training step of a mode, as the example does it."""
    torch.manual_seed(0)
    mesh = make_mesh(mode, DEVICES)
    model = GPT(config).to("spmdx")
    annotate(model, mode, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    ids = torch.randint(config.vocab, (BATCH, config.context + 1))
    x, y = ids[:, :-1].contiguous().to("spmdx"), ids[:, 1:].contiguous().to("spmdx")
    if "data" in mesh.axis_names:
        spmdx.mark_sharding(x, mesh, ("data", None))
        spmdx.mark_sharding(y, mesh, ("data", None))

    def step():
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()

    return step


def measure(config, steps):
    """{mode: milliseconds}, and by lane what was predicted and measured."""
    found = {}
    for mode in MODES[1:]:
        profile = spmdx.profile(stepper(mode, config), steps=steps, warmup=3)
        lanes = {}
        for lane in ("compute", "wire"):
            ops = [op for op in profile.ops if op.lane == lane]
            lanes[lane] = sum(op.predicted_ns for op in ops), sum(op.device_ns for op in ops)
        found[mode] = {
            "predicted_ms": profile.predicted_ns / 1e6,
            "device_ms": profile.device_ns / 1e6,
            "process_ms": profile.process_ns / 1e6,
            "step_ms": profile.step_ns / 1e6,
            "plans_made": profile.plans_made,
            **{f"{lane}_ms": [ns / 1e6 for ns in both] for lane, both in lanes.items()},
        }
    return found


def show(found):
    table = Table(title="Milliseconds a step", title_justify="left")
    columns = "predicted", "one device", "ratio", "compute", "wire", "this process", "step"
    table.add_column("mode")
    for name in columns:
        table.add_column(name, justify="right")
    for mode, row in found.items():
        ratio = row["device_ms"] / row["predicted_ms"]
        lanes = ["{:.2f} / {:.2f}".format(*row[f"{lane}_ms"]) for lane in ("compute", "wire")]
        times = [f"{row[name]:.2f}" for name in ("predicted_ms", "device_ms")]
        rest = [f"{row[name]:.1f}" for name in ("process_ms", "step_ms")]
        table.add_row(mode, *times, f"{ratio:.2f}", *lanes, *rest)
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    print("compute, wire: predicted / one device")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a small model, for a quick try")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--no-calibration", action="store_true", help="the costs that come along")
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    spmdx.runtime.set_device_count(DEVICES)
    if not options.no_calibration:
        spmdx.set_topology(spmdx.calibrate(devices=DEVICES))
    sizes = (2, 32, 16) if options.tiny else (4, 128, 64)
    layers, width, context = sizes
    config = Config(96, layers=layers, width=width, context=context, dropout=0.0)
    found = measure(config, options.steps)
    show(found)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
