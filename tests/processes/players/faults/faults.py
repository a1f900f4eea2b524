# SPDX-License-Identifier: Apache-2.0
"""One of the processes that play drafted programs, one after the other.

    faults.py FOLDER TASK...

A task is a seed, or "load SEED": of what another world has saved in FOLDER. Prints JSON lines:
what happens, and a row at the end of each task.
"""

import dataclasses
import json
import os
import pathlib
import random
import sys
import time
import traceback

import spmdx
import torch
from fault_drafts import SHAPES, Program, draft
from fault_plants import PLANTS
from fault_play import Play
from fault_states import digest, largest_difference
from fault_strikes import RANK, Interruptions

FOLDER = pathlib.Path(sys.argv[1])
COUNT = spmdx.runtime.global_runtime_device_count()


def say(**said) -> None:
    print(json.dumps(said), flush=True)


def played(program: Program, interruptions: Interruptions) -> dict:
    """Plays a program with its faults and without, and in plain PyTorch."""
    folder = FOLDER / f"snapshots {program.seed}"
    runs = {}
    for kind in ("calm", "end") if program.calm_first else ("end", "calm"):
        if program.idle_recover:
            spmdx.runtime.recover()
        at = folder / kind
        at.mkdir(parents=True, exist_ok=True)
        faults = program.faults if kind == "end" else ()

        def note(what: str, *details, kind=kind) -> None:
            say(seed=program.seed, run=kind, what=what, details=details)

        run = Play(program, "spmdx", faults, at, note, interruptions)
        found = run.run()
        runs[kind] = (run, found)
    calm, end = runs["calm"][1], runs["end"][1]
    # Ctrl-C may come when a step has ended and before what it was waited for is kept.
    seen, wanted = runs["end"][0].reads, runs["calm"][0].reads
    lost = [key for key in wanted if key not in seen]
    error, name = max(
        largest_difference(end, calm),
        largest_difference(seen, {key: wanted[key] for key in seen if key in wanted}),
    )
    row = {
        "lost": lost,
        "read": [digest(wanted), digest(seen)],
        "calm": digest(calm),
        "end": digest(end),
        "off": [error, name],
        "struck": runs["end"][0].strikes.struck,
        "recovers": runs["end"][0].strikes.turn,
        "reloads": runs["end"][0].reloads,
    }
    if program.saves:
        run = runs["end"][0]
        spmdx.checkpoint.save(run.kept.state(), FOLDER / f"saved {program.seed}")
        row["saved"] = saved_digest(run)
    if RANK == 0 and not program.is_random():
        plain = Play(program, "cpu")
        found = plain.run() | plain.reads
        both = {k: v for k, v in (calm | wanted).items() if not isinstance(v, str) and k != "drawn"}
        row["plain"] = largest_difference(both, found)
    return row


def saved_digest(run: Play) -> str:
    values = {name: value.detach().cpu() for name, value in run.tensors().items()}
    return digest(values | {"rng": torch.rand(3, device="spmdx").cpu()})


def loaded(program: Program) -> dict:
    """Loads what another world has saved, cut otherwise."""
    processes = spmdx.runtime.process_count()
    mesh = random.Random(program.seed).choice(SHAPES[COUNT])
    other = dataclasses.replace(
        program, processes=processes, devices=COUNT // processes, mesh=mesh, specs=1
    )
    run = Play(other, "spmdx")
    run.build()
    spmdx.checkpoint.load(run.kept.state(), FOLDER / f"saved {program.seed}")
    return {"loaded": saved_digest(run)}


def gather() -> None:
    """Starting takes long on a machine that does other things; the processes' patience does not."""
    world = f"{os.environ['MASTER_PORT']} is up in"
    (FOLDER / f"{world} {RANK}").touch()
    while len(list(FOLDER.glob(f"{world} *"))) < spmdx.runtime.process_count():
        time.sleep(0.01)


def main() -> None:
    gather()
    spmdx.register_rule("faults::pass_on", "*->*")
    interruptions = Interruptions()
    if planted := os.environ.get("PLANTED"):
        PLANTS[planted]()
    for task in sys.argv[2:]:
        since = time.monotonic()
        *load, seed = task.split()
        program = draft(int(seed))
        say(seed=program.seed, what="begins", details=[task])
        try:
            row = loaded(program) if load else played(program, interruptions)
        except BaseException:
            say(seed=program.seed, what="broken", details=[traceback.format_exc()[-3000:]])
            raise
        say(seed=program.seed, row=row | {"seconds": round(time.monotonic() - since, 2)}, task=task)


if __name__ == "__main__":
    main()
