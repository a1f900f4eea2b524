# SPDX-License-Identifier: Apache-2.0
"""What planning costs, by nodes and by devices, and a Llama-sized step planned without allocating.

    python benchmarks/plan.py [--rounds 3] [--json figures.json]

Every case runs in a process of its own, so nothing is known from another case; cases of one table
take turns, and the smallest time of the rounds counts. Times are CPU seconds: planning is one
thread, and other programs do not count. Nothing runs on the devices: there are none.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import spmdx
import torch
import torch.nn.functional as F
from llama import Config, Llama, mark_tensor_parallel, sequence_parallel
from rich.console import Console
from rich.table import Table

TINY = dict(width=64, heads=4, kv_heads=2, hidden=128, vocab=64, context=32)
NODES = (1250, 2500, 5000, 10000)
DEVICES = (2, 8, 64, 512, 4096, 16384)
MODES = ("data × tensor", "data × tensor, sequence parallel", "data × tensor, state sharded")


def training_step(model, optimizer, x, y):
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def plan_seconds():
    """CPU seconds of mark_step: the graph is closed, hashed, compiled, verified; none is known."""
    spmdx._C.clear_cache()
    began = time.process_time()
    spmdx.mark_step()
    return time.process_time() - began


def make_mesh(devices, model):
    return spmdx.Mesh(range(devices), (devices // model, model), ("data", "model"))


def measure(config, mesh, batch, mode, dtype):
    """Plan the third step: by then the optimizer's state lies where it belongs."""
    residual = sequence_parallel(mesh) if "sequence" in mode else lambda x: x
    torch.set_default_dtype(dtype)
    with torch.device("spmdx"):
        model = Llama(config, residual)
    mark_tensor_parallel(model, mesh, "state" in mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    figures = {"parameters": sum(p.numel() for p in model.parameters())}
    spmdx.mark_step()
    for _ in range(3):
        x, y = (torch.zeros(batch, config.context, dtype=torch.int64, device="spmdx") for _ in "xy")
        spmdx.mark_sharding(x, mesh, ("data", None))
        spmdx.mark_sharding(y, mesh, ("data", None))
        before = spmdx.debug.counters()["ops_recorded"]
        began = time.process_time()
        training_step(model, optimizer, x, y)
        figures["trace_s"] = time.process_time() - began
        figures["nodes"] = spmdx.debug.counters()["ops_recorded"] - before
        figures["plan_s"] = plan_seconds()
    return figures | of_report(spmdx.explain())


def of_report(report):
    kinds = sorted({c.kind for c in report.collectives})
    return {
        "collectives": {kind: report.count(kind) for kind in kinds},
        "wire_bytes": report.wire_bytes,
        "peak_bytes": report.peak_bytes,
        "fallbacks": len(report.fallbacks),
        "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


# --- cases ----------------------------------------------------------------------------------------


def small_case(layers, devices, model):
    with spmdx.plan_only():
        mesh = make_mesh(devices, model)
        config = Config(layers=layers, **TINY)
        return measure(config, mesh, devices, MODES[0], torch.float32)


def llama_case(mode, devices, layers):
    with spmdx.plan_only():
        mesh = make_mesh(devices, 8)
        return measure(Config(layers=layers), mesh, devices // 8, mode, torch.bfloat16)


CASES = {"small": small_case, "llama": llama_case}


def in_own_process(case, *arguments):
    command = [sys.executable, __file__, "--case", json.dumps([case, *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case}{arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def fastest(cases, rounds):
    """{case: its figures, with the smallest plan time of the rounds}."""
    best = {}
    for _ in range(rounds):
        for case in cases:
            found = in_own_process(*case)
            if case not in best or found["plan_s"] < best[case]["plan_s"]:
                best[case] = found
    return best


def layers_for(nodes):
    """How many layers give a step of about so many nodes."""
    few, more = (in_own_process("small", layers, 8, 2)["nodes"] for layers in (1, 2))
    return {n: max(1, round((n - few) / (more - few)) + 1) for n in nodes}


# --- the report -----------------------------------------------------------------------------------


def show_scaling(console, title, head, rows):
    table = Table(head, "nodes", "plan CPU s", "µs a node", "ratio", title=title)
    first = rows[0][1]["plan_s"] / rows[0][1]["nodes"]
    for name, row in rows:
        each = row["plan_s"] / row["nodes"]
        table.add_row(
            f"{name:,}",
            f"{row['nodes']:,}",
            f"{row['plan_s']:.3f}",
            f"{each * 1e6:.1f}",
            f"{each / first:.2f}",
        )
    console.print(table)


def show_llama(console, rows, devices):
    table = Table("figure", *rows, title=f"Llama-shaped, 32 layers, bf16, on {devices} devices")
    figures = {
        "parameters": lambda r: f"{r['parameters'] / 1e9:.2f} B",
        "nodes traced": lambda r: f"{r['nodes']:,}",
        "trace, CPU s": lambda r: f"{r['trace_s']:.2f}",
        "plan, CPU s": lambda r: f"{r['plan_s']:.2f}",
        "collectives": lambda r: "\n".join(f"{n} {kind}" for kind, n in r["collectives"].items()),
        "bytes over the wire, a device": lambda r: f"{r['wire_bytes']:,}",
        "peak bytes, a device (predicted)": lambda r: f"{r['peak_bytes']:,}",
        "ops without a rule": lambda r: str(r["fallbacks"]),
        "memory of this process, bytes": lambda r: f"{r['host_peak_bytes']:,}",
    }
    for name, text in figures.items():
        table.add_row(name, *(text(row) for row in rows.values()))
    console.print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        name, *arguments = json.loads(options.case)
        print(json.dumps(CASES[name](*arguments)))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    layers = layers_for(NODES)
    cases = {n: ("small", layers[n], 8, 2) for n in NODES}
    found = fastest(list(cases.values()), options.rounds)
    by_nodes = [(n, found[case]) for n, case in cases.items()]
    show_scaling(console, "Plan time by nodes, 4 × 2 devices, data × tensor", "asked for", by_nodes)
    cases = {n: ("small", layers[5000], n, 1) for n in DEVICES}  # one axis: two devices have no two
    found = fastest(list(cases.values()), options.rounds)
    by_devices = [(n, found[case]) for n, case in cases.items()]
    show_scaling(console, "Plan time by devices, data parallel", "devices", by_devices)
    llama = {mode: in_own_process("llama", mode, 1024, 32) for mode in MODES}
    show_llama(console, llama, 1024)
    if options.json:
        figures = {"by_nodes": by_nodes, "by_devices": by_devices, "llama": llama}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
