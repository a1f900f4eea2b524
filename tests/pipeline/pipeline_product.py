# SPDX-License-Identifier: Apache-2.0
"""All models by all loops, numbers of microbatches, numbers of stages and schedules: long.

python tests/pipeline/pipeline_product.py [--only REGEX]     # eight devices of one process
torchrun --nproc-per-node 2 tests/pipeline/pipeline_product.py [--only REGEX]

Tests run a part of these. Each setting is compared with plain PyTorch, or where that would draw or
round otherwise with the device without stages; and the schedules with each other: the same bits.
"""

import argparse
import functools
import itertools
import math
import pathlib
import re
import sys

import spmdx
import torch

HELPERS = pathlib.Path(__file__).parents[1] / "python" / "helpers"
sys.path[:0] = [str(HELPERS)]  # pytest has them; a script does not
from pipeline_equality import assert_traces_agree, check_equal  # noqa: E402
from pipeline_models import CASES  # noqa: E402

LOOPS = ("clipped", "scaled", "accumulated")
SCHEDULES = ("gpipe", "1f1b", "zb-h1", "interleaved:2")
SAME_BITS = ("gpipe", "1f1b", "zb-h1")  # sums in one order
# Terms of a tied weight are added in another order, and a bit of a parameter changes
# how it is rounded to bfloat16, two steps later.
OF_AUTOCAST = 2**-8


def settings(only):
    """(model, loop, microbatches, stages, mesh, axis of the data, schedule)."""
    devices = spmdx.runtime.global_runtime_device_count()
    for name, loop, m, p, wide in itertools.product(CASES, LOOPS, (1, 2, 4, 7), (2, 3, 4), (1, 2)):
        if p * wide > devices:
            continue
        shape, axes = ((p,), ("pipe",)) if wide == 1 else ((p, wide), ("pipe", "data"))
        mesh = spmdx.Mesh(range(p * wide), shape, axes)
        for schedule in SCHEDULES:
            chunks = chunks_of(schedule)
            possible = p * chunks in CASES[name].cuts and (chunks == 1 or m % p == 0)
            if possible and re.search(only, f"{name}, {loop}, m = {m}, {mesh}, {schedule}"):
                yield name, loop, m, p, mesh, "data" if wide > 1 else None, schedule


def chunks_of(schedule):
    return int(schedule.partition(":")[2] or 1)


@functools.cache
def beside_data_alone(name, loop, m):
    """What the same mesh gives without stages: summands in bfloat16 are added in its order."""
    mesh = spmdx.Mesh(range(2), (2,), ("data",))
    return check_equal(name, loop, mesh, 1, m, data_axis="data", relative=math.inf)


def trained(name, loop, m, p, mesh, data_axis, schedule):
    """The parameters at the end, once all that training gave was compared."""
    chunks = chunks_of(schedule)
    cuts = CASES[name].cuts[p * chunks]

    def prepare(model, mesh):
        spmdx.nn.pipeline(model, mesh, cuts=cuts, schedule=schedule, chunks=chunks)

    how = {"prepare": prepare, "data_axis": data_axis, "cuts": cuts, "schedule": schedule}
    if loop == "scaled":
        relative = math.inf if data_axis else OF_AUTOCAST
        trace = check_equal(
            name, loop, mesh, p * chunks, m, against="spmdx", relative=relative, **how
        )
        if data_axis:
            assert_traces_agree(trace, beside_data_alone(name, loop, m), OF_AUTOCAST)
    else:
        trace = check_equal(name, loop, mesh, p * chunks, m, **how)
    return trace.parameters


def check(setting, known):
    """What is wrong with a setting, or None. `known`: parameters by what they are the bits of."""
    *case, schedule = setting
    try:
        got = trained(*setting)
    except Exception as error:  # all that fail are told
        return f"{type(error).__name__}: {error}"
    if schedule not in SAME_BITS:
        return None
    other = known.setdefault(str(case), got)
    differ = [name for name in got if not torch.equal(got[name], other[name])]
    return f"other bits than another schedule's in {differ}" if differ else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression of settings")
    options = parser.parse_args()
    if spmdx.runtime.process_count() == 1:
        spmdx.runtime.set_device_count(8)
    torch.set_num_threads(1)
    run, failed, known = 0, 0, {}
    for setting in settings(options.only):
        wrong = check(setting, known)
        run, failed = run + 1, failed + (wrong is not None)
        if wrong:
            print(*setting, wrong, sep=", ", flush=True)
    print(f"{run} settings, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
