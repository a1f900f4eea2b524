# SPDX-License-Identifier: Apache-2.0
"""benchmarks/pipeline_at_scale.py: a step of Llama 405B on 16,384 devices, planned and not run."""

import json
import subprocess
import sys
from pathlib import Path

from hardware import ON_GPU

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAM = """
import json, resource
from pipeline_at_scale import imbalance, plan
report, _, _ = plan(126, 4)
pipeline = report.pipeline
print(json.dumps({
    "mesh": report.mesh, "stages": len(pipeline.stages), "microbatches": pipeline.microbatches,
    "in_flight": [stage.in_flight for stage in pipeline.stages],
    "imbalance": imbalance(report),
    "held": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def test_a_step_of_a_large_model_is_one_plan_with_stages_that_are_alike():
    """Four microbatches; the benchmark plans 16. Other traces of this length are cut."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=BENCHMARKS, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["mesh"] == "Mesh(data=128, model=8, pipe=16)"
    assert found["stages"] == 16 and found["microbatches"] == 4
    assert found["in_flight"] == [min(4, 16 - stage) for stage in range(16)]
    assert found["imbalance"] < 0.05
    assert found["held"] < (2 << 30) or ON_GPU  # CUDA itself needs memory of the host
