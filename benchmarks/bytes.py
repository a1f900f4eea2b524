# SPDX-License-Identifier: Apache-2.0
"""What a training step sends: DDP, FSDP2 and DTensor, counted while they run, beside spmdx's plan.

    python benchmarks/bytes.py [--worlds 2 4] [--sizes 4L/128d 6L/384d] [--json figures.json]

The peers run as processes over Gloo on this machine; every collective of their fifth step is
counted. spmdx's step of the same model, batch and layout is planned for as many devices, and for
devices that compute fast: on slow ones it shares out what the peers repeat, and sends more. Bytes
are those one rank receives: all_reduce 2·size·(g − 1)/g, all_gather out·(g − 1)/g, reduce_scatter
in·(g − 1)/g, in a group of g. Nobody keeps a global loss.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import spmdx
import torch
from nanogpt import GPT, Config, token_mean, train_step, valid_mean
from rich.console import Console
from rich.table import Table
from spmdx.topology import Level

# nanoGPT's settings for a CPU and for Shakespeare; of the larger one a smaller batch.
SIZES = {
    "4L/128d": (dict(layers=4, width=128, heads=4, context=64), 12),
    "6L/384d": (dict(layers=6, width=384, heads=6, context=256), 2),
}
ROWS = {  # name: (the peer's mode, q, k and v in one matrix, a loss that may ignore tokens)
    "data parallel": ("ddp", True, False),
    "data parallel, ignored tokens": ("ddp", True, True),
    "fully sharded": ("fsdp", True, False),
    "fully sharded, no reshard": ("fsdp, no reshard", True, False),
    "tensor parallel, MLP": ("tp", True, False),
    "tensor parallel, MLP and heads": ("tp", False, False),
}
# The default wires, between devices as fast as those that the peers are made for.
FAST = spmdx.Topology("fast", (Level(0, 5000, 50, 500),), "gpu")
SECONDS = 1200  # for all cases of one world


def peers(world, cases):
    """Per case {kind: [collectives, bytes]} of one rank of `world` processes."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, here / "peers.py", f"{folder}/store", json.dumps(cases)]
        common = dict(os.environ, WORLD_SIZE=str(world), OMP_NUM_THREADS="1")
        common["GLOO_SOCKET_IFNAME"] = "lo"
        ranks = [
            subprocess.Popen(command, env=dict(common, RANK=str(rank)), stdout=subprocess.PIPE)
            for rank in range(world)
        ]
        try:
            outputs = [rank.communicate(timeout=SECONDS)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"processes ended with {[rank.returncode for rank in ranks]}")
    return json.loads(outputs[0].decode().splitlines()[-1])


def annotate(model, mode, mesh):
    """The peer's layout: FSDP2 cuts dim 0 of every parameter, tensor parallelism the matrices."""
    if mode.startswith("fsdp"):
        for p in model.parameters():
            spmdx.mark_sharding(p, mesh, ("axis", *[None] * (p.dim() - 1)))
    if mode == "tp":
        for block in model.blocks:
            heads = block.attention if len(block.attention.qkv) == 3 else None
            for column in (block.up, *(heads.qkv if heads else ())):
                spmdx.mark_sharding(column.weight, mesh, ("axis", None))
            for row in (block.down, *((heads.out,) if heads else ())):
                spmdx.mark_sharding(row.weight, mesh, (None, "axis"))


@contextlib.contextmanager
def planning_for(topology):
    before = spmdx.get_topology()
    spmdx.set_topology(topology)
    try:
        yield
    finally:
        spmdx.set_topology(before)


def plan(mode, sizes, batch, ignoring, world):
    """spmdx's plan of the fourth step: the optimizer's state has its layout by then."""
    config = Config(**sizes)
    spmdx.set_gather_budget(None if mode == "fsdp, no reshard" else 0)
    with planning_for(FAST), spmdx.plan_only():
        mesh = spmdx.Mesh(range(world), (world,), ("axis",))
        with torch.device("spmdx"):
            model = GPT(config)
        annotate(model, mode, mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        rows = batch if mode == "tp" else batch * world
        for _ in range(4):
            x, y = torch.zeros(2, rows, config.context, dtype=torch.int64).unbind(0)
            x, y = x.to("spmdx"), y.to("spmdx")
            if mode != "tp":
                spmdx.mark_sharding(x, mesh, ("axis", None))
                spmdx.mark_sharding(y, mesh, ("axis", None))
            train_step(model, optimizer, x, y, valid_mean if ignoring else token_mean)
            spmdx.mark_step()
        return spmdx.explain()


def counted(report):
    """{kind: [collectives, bytes]}, as of a peer."""
    found = {}
    for c in report.collectives:
        row = found.setdefault(c.kind, [0, 0])
        row[0] += c.count
        row[1] += c.bytes * c.count
    return found


def totals(found):
    return tuple(sum(column) for column in zip(*found.values(), strict=True)) or (0, 0)


def compare(world, sizes):
    """[(row, size, the peer's, spmdx's)] for `sizes`, {name: (model's sizes, rows a process)}."""
    cases = [
        (name, label, (mode, dict(config, fused=fused), batch, ignoring))
        for label, (config, batch) in sizes.items()
        for name, (mode, fused, ignoring) in ROWS.items()
        if fused or config["heads"] % world == 0  # DTensor cuts whole heads only
    ]
    theirs = peers(world, [case for _, _, case in cases])
    return [
        (name, label, found, counted(plan(*case, world)))
        for (name, label, case), found in zip(cases, theirs, strict=True)
    ]


# --- the report -----------------------------------------------------------------------------------


def text(found):
    return "\n".join(f"{n} {kind}, {size:,}" for kind, (n, size) in sorted(found.items())) or "none"


def show(console, world, rows):
    table = Table(
        *("model", "mode", "peer: collectives, bytes", "spmdx: collectives, bytes", "ratios"),
        title=f"One step, a rank of {world}",
        show_lines=True,
    )
    for name, label, theirs, ours in rows:
        (n, size), (our_n, our_size) = totals(theirs), totals(ours)
        worse = " MORE" if our_n > n or our_size > size else ""
        ratios = f"{our_n}/{n} collectives\n{our_size / size:.3f} of the bytes{worse}"
        table.add_row(label, name, text(theirs), text(ours), ratios)
    console.print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    figures = {}
    for world in options.worlds:
        rows = compare(world, {label: SIZES[label] for label in options.sizes})
        show(console, world, rows)
        figures[world] = rows
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
