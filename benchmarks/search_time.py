# SPDX-License-Identifier: Apache-2.0
"""How long a search of strategies takes for models of hundreds of billions of parameters.

    python benchmarks/search_time.py [--models GPT] [--json FILE]

GPT-3 175B on 1,024 and Llama 3 405B on 16,384 devices (h100-80, infiniband), in bfloat16 with
AdamW. Only plans are made: seconds are of this machine, and the rest is predicted.
"""

import argparse
import json
import time
from pathlib import Path

import llama
import nanogpt
import spmdx
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

GPT_175B = nanogpt.Config(layers=96, width=12288, heads=96, context=2048, vocab=51200)
LLAMA_405B = llama.Config(126, 16384, 128, 8, 53248, 128256, 8192)
# The model, its configuration, sequences of a batch, devices.
SETTINGS = {
    "GPT-3 175B": (nanogpt.GPT, GPT_175B, 1536, 1024),
    "Llama 3 405B": (llama.Llama, LLAMA_405B, 2048, 16384),
}


def searched(make, config, samples, devices):
    """What the search finds, and how long it takes."""
    with spmdx.plan_only():
        with torch.device("spmdx"):
            model = make(config).to(torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters())

        def step(batches):
            for ids in batches:
                logits = model(ids[:, :-1]).flatten(0, 1)
                (F.cross_entropy(logits, ids[:, 1:].flatten()) / len(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()

        batch = torch.empty(samples, config.context + 1, dtype=torch.long, device="meta")
        began = time.perf_counter()
        plan = spmdx.auto.search(
            step,
            model,
            optimizer,
            batch,
            devices=devices,
            hardware="h100-80",
            topology="infiniband",
        )
        return plan, time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="", help="a part of their names")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, rows = Console(width=180), {}
    table = Table("model", "devices", "search s", "chosen", "step s", "peak GiB", "efficiency")
    for name, setting in SETTINGS.items():
        if options.models in name:
            plan, seconds = searched(*setting)
            console.print(plan)
            best = plan.candidates[0]
            rows[name] = {"seconds": seconds, "step_ns": best.step_ns, "chosen": repr(plan.strategy)}
            figures = f"{best.step_ns / 1e9:.2f}", f"{best.peak_bytes / 2**30:.1f}"
            chosen = " × ".join(f"{axis} {size}" for axis, size in plan.strategy.axes.items())
            share = f"{best.efficiency:.0%}"
            table.add_row(name, f"{setting[-1]:,}", f"{seconds:.1f}", chosen, *figures, share)
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
