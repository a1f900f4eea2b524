# SPDX-License-Identifier: Apache-2.0
"""A pipelined model, trained on the first devices of all processes and in plain PyTorch here.

    pipelined.py MODEL LOOP MICROBATCHES SHAPE SCHEDULE [chosen]

SHAPE is that of a mesh with axes pipe, data and model, as far as it has them: "2,2". Cuts are those
of the model, unless they are to be chosen. Fails unless losses, gradients and parameters are the
same within 1e-9; prints a hash of the parameters.
"""

import hashlib
import math
import pathlib
import sys

import spmdx

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "pipeline"))

from pipeline_equality import check_equal  # noqa: E402
from pipeline_models import CASES  # noqa: E402


def main(
    name: str, loop: str, microbatches: int, shape: list[int], schedule: str, chosen: bool
) -> None:
    mesh = spmdx.Mesh(range(math.prod(shape)), shape, ("pipe", "data", "model")[: len(shape)])
    p = shape[0]

    def prepare(model, mesh):
        cuts = None if chosen else CASES[name].cuts[p]
        spmdx.nn.pipeline(model, mesh, cuts=cuts, schedule=schedule)

    trace = check_equal(
        name,
        loop,
        mesh,
        p,
        microbatches,
        schedule=schedule,
        prepare=prepare,
        data_axis="data" if len(shape) > 1 else None,
    )
    bits = b"".join(t.numpy().tobytes() for t in trace.parameters.values())
    print(f"parameters {hashlib.sha256(bits).hexdigest()[:16]}")


if __name__ == "__main__":
    name, loop, microbatches, shape, schedule, *rest = sys.argv[1:]
    main(name, loop, int(microbatches), [*map(int, shape.split(","))], schedule, bool(rest))
