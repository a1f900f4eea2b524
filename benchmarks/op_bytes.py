# SPDX-License-Identifier: Apache-2.0
"""What each core op moves in every placement of its operands, beside the least that is known to do.

    python benchmarks/op_bytes.py [--op mm softmax] [--mesh 2,3,4] [--all] [--json figures.json]

A placement cuts every operand along one of its dims, or leaves it whole, over one axis. Bytes are
those a device receives in the plan of the op alone, and in that of forward and backward when only
the gradients are kept; the incoming gradient is whole. The bounds are derived by hand: op_bounds.py
says how bytes are charged, op_rows.py and op_rows_moving.py have the ops. Nothing runs. Plans are
made for slow links that take no time to start: bytes decide, and work where they are equal. The
exit status is 1 where an op moves more than its bound and no reason is on record.
"""

import argparse
import json
import sys
from pathlib import Path

import spmdx
import torch
from op_bounds import bound
from op_open import OPEN
from op_rows import maths
from op_rows_moving import moving
from rich.console import Console
from rich.table import Table
from spmdx.topology import Level

OPS = {op.name: op for op in (*maths(), *moving())}
BYTES_ALONE = spmdx.Topology("bytes alone", (Level(0, 0, 0, 10**7),))


def operand(op, name, cut, mesh):
    made = torch.zeros(op.shape(name), dtype=torch.int64 if name in op.integers else None)
    spec = tuple("axis" if letter == cut else None for letter in op.operands[name])
    return spmdx.mark_sharding(made.to("spmdx"), mesh, spec)


def send_back(result):
    """Gradients for a whole incoming one."""
    results = [y for y in (result if isinstance(result, tuple) else (result,)) if y.requires_grad]
    torch.autograd.backward(results, [torch.ones(y.shape).to("spmdx") for y in results])


def moved_bytes(op, placement, devices, backward):
    """What a device receives in the plan."""
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(devices), (devices,), ("axis",))
        operands = {name: operand(op, name, cut, mesh) for name, cut in placement.items()}
        for name in op.trained if backward else "":
            operands[name].requires_grad_()
        spmdx.mark_step()
        result = op.call(*operands.values())
        if backward:
            send_back(result)
            del result
        spmdx.mark_step()
        return spmdx.explain().wire_bytes


def measure(op, devices):
    """[(pass, placement, bytes moved, bound)] of every placement."""
    found = []
    for backward in (False, True) if op.trained else (False,):
        for placement in op.placements():
            moved = moved_bytes(op, placement, devices, backward)
            least = bound(op, placement, devices, backward)
            found.append(("gradients" if backward else "forward", placement, moved, least))
    return found


def exceeds(moved, least):
    return moved > least.bytes + 1e-6


# --- the report -----------------------------------------------------------------------------------


def named(op, placement):
    """ "a: mk, b: k·n" cut at k is "a: m(k), b: (k)n"."""
    cuts = placement.items()
    return " ".join(
        f"{n}:" + op.operands[n].replace(c, f"({c})") if c else f"{n}:" + op.operands[n]
        for n, c in cuts
    )


def add_rows(table, op, by_mesh, everything):
    """Rows of one op; returns how many of them move more than they should."""
    failed = 0
    for rows in zip(*by_mesh, strict=True):
        which, placement, _, least = rows[-1]
        excess = any(exceeds(moved, bound) for *_, moved, bound in rows)
        if not (everything or excess or any(moved or bound.bytes for *_, moved, bound in rows)):
            continue
        known = OPEN.get(op.name)
        failed += excess and not known
        mark = (f"ABOVE: {known[1]}" if known else "EXCESS") if excess else ""
        cells = [f"{moved:,} / {bound.bytes:,.0f}" for *_, moved, bound in rows]
        table.add_row(
            op.name, which, named(op, placement), *cells, least.formula, mark or least.why
        )
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", nargs="+", choices=OPS, metavar="NAME", help="only these")
    parser.add_argument("--mesh", default="2,3,4", help="sizes of the axis")
    parser.add_argument("--all", action="store_true", help="also placements that move nothing")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    sizes = [int(n) for n in options.mesh.split(",")]
    chosen = [OPS[name] for name in options.op or OPS]
    columns = [f"{n} devices: moved / bound" for n in sizes]
    table = Table("op", "pass", "cut", *columns, "bound", "why", title="Bytes a device receives")
    spmdx.set_topology(BYTES_ALONE)
    failed, figures = 0, {}
    for op in chosen:
        by_mesh = [measure(op, n) for n in sizes]
        failed += add_rows(table, op, by_mesh, options.all)
        for n, rows in zip(sizes, by_mesh, strict=True):
            for which, placement, moved, least in rows:
                figures[f"{op.name}, {which}, {named(op, placement)}, {n}"] = (moved, least.bytes)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    total = len(figures)
    print(
        f"{len(chosen)} ops, {total} plans, {sum(m == 0 for m, _ in figures.values())} move nothing"
    )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if failed:
        sys.exit(f"{failed} placements move more than their bound")


if __name__ == "__main__":
    main()
