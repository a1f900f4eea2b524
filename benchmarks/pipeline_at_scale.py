# SPDX-License-Identifier: Apache-2.0
"""Plans a step of Llama 405B on 16,384 devices: data × model × pipe, with cuts that are chosen.

pipeline_at_scale.py [--microbatches 16] [--layers 126]

Nothing runs: it prints how long planning takes, what this process holds, and the report.
"""

import argparse
import resource
import time

import spmdx
import torch
import torch.nn.functional as F
from llama import Config, Llama, mark_tensor_parallel
from rich.console import Console

DATA, MODEL, PIPE = 128, 8, 16
SIZES = dict(width=16384, heads=128, kv_heads=8, hidden=53248, vocab=128256, context=8192)


def plan(layers, microbatches, data=DATA, model=MODEL, pipe=PIPE, **sizes):
    """The report of a step, and the CPU seconds of its trace and its plan."""
    with spmdx.plan_only():
        shape, axes = (data, model, pipe), ("data", "model", "pipe")
        mesh = spmdx.Mesh(range(data * model * pipe), shape, axes)
        config = Config(layers=layers, **{**SIZES, **sizes})
        with torch.device("spmdx"):
            llama = Llama(config).to(torch.bfloat16)
        mark_tensor_parallel(llama, mesh)
        spmdx.nn.pipeline(llama, mesh, axis="pipe")
        began = time.process_time()
        for _ in range(microbatches):
            ids = torch.zeros(data, config.context + 1, dtype=torch.long, device="spmdx")
            spmdx.mark_sharding(ids, mesh, ("data", None))
            logits = llama(ids[:, :-1]).flatten(0, 1)
            (F.cross_entropy(logits, ids[:, 1:].flatten()) / microbatches).backward()
        traced = time.process_time()
        spmdx.mark_step()
        return spmdx.explain(), traced - began, time.process_time() - traced


def imbalance(report):
    """How much longer the slowest stage works than the average one."""
    work = [stage.forward_ns + stage.backward_ns for stage in report.pipeline.stages]
    return max(work) * len(work) / sum(work) - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--layers", type=int, default=126)
    options = parser.parse_args()
    report, traced, planned = plan(options.layers, options.microbatches)
    console = Console(width=120)
    console.print(report.pipeline)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    console.print(
        f"traced and cut in {traced:.1f} s, planned in {planned:.1f} s of CPU; this process held "
        f"{held:,} bytes; the slowest stage works {imbalance(report):.1%} longer than the average"
    )


if __name__ == "__main__":
    main()
