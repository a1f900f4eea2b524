# SPDX-License-Identifier: Apache-2.0
"""The public names of modules that lie in rooms: programs, pickles and messages know these."""

import sys
from typing import Any

# By public name, the place. Of those whose own name begins with `_`, files name what they hold.
PLACES = {
    "accumulation": "_program.accumulation",
    "calibration": "_machine.calibration",
    "distribute": "_modules.distribute",
    "export": "_export.export",
    "gathering": "_program.gathering",
    "global_mesh": "_annotate.global_mesh",
    "hardware": "_machine.hardware",
    "held": "_report.held",
    "load_reports": "_report.load",
    "local_shards": "_annotate.local_shards",
    "machine": "_machine.in_use",
    "manual": "_manual.shard_map",
    "measure": "_report.measure",
    "memory_reports": "_report.memory",
    "memory_limit": "_program.memory_limit",
    "mesh": "_annotate.mesh",
    "parallel": "_modules.parallel",
    "pipeline": "_pipelines.pipeline",
    "placement_reports": "_report.placement",
    "plan": "_program.plan",
    "profiles": "_report.profile",
    "replay": "_replay.compile",
    "report": "_report.report",
    "report_diff": "_report.diff",
    "seeds": "_program.seeds",
    "sharding": "_annotate.sharding",
    "spec": "_annotate.spec",
    "stage_reports": "_report.stages",
    "stages": "_modules.stages",
    "step": "_program.step",
    "tensor": "_annotate.tensor",
    "topology": "_machine.topology",
    "visualize": "_report.visualize",
    "zero_reports": "_report.zero",
    "_ties": "_device.ties",
}
# Modules that list names of rooms as their own.
LISTING = ("auto", "checkpoint", "compilers", "data", "report", "runtime")


def publish() -> None:
    """Enters modules of rooms under their public names, which what they define then bears."""
    package = sys.modules["spmdx"]
    for name, place in PLACES.items():
        module, public = sys.modules[f"spmdx.{place}"], f"spmdx.{name}"
        sys.modules[public] = module
        vars(package).setdefault(name, module)  # spmdx.step is a function
        for value in list(vars(module).values()):
            if _home(value) == f"spmdx.{place}":
                value.__module__ = public  # one text, which a pickle of several holds once
        module.__name__ = public
    for name in LISTING:
        module = sys.modules[f"spmdx.{name}"]
        for listed in map(vars(module).get, module.__all__):
            if _home(listed).startswith("spmdx._"):
                listed.__module__ = module.__name__


def _home(value: Any) -> str:
    """The module that a class or a function says it is of; empty for other values."""
    return value.__module__ if hasattr(value, "__qualname__") else ""
