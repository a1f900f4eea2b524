# SPDX-License-Identifier: Apache-2.0
"""The strategy that is chosen takes at most 2 % longer than the best of all, planned whole."""

import pytest
import searched
import spmdx
from spmdx._auto.search import Search
from spmdx._auto.space import Space
from spmdx._auto.trial import Program
from spmdx._pipelines.kept import planned_alone

TOPOLOGIES = "nvlink", "infiniband", "gloo"
PROGRAMS = ("mlp", 4), ("mlp", 8), ("own", 4)


def best_of_all(search, devices, limit):
    """The least time of those that fit, each planned whole."""
    estimated = search._estimates.of_all(devices)
    wholes = [search.whole(e) for e in estimated if not e.estimate.short_bytes]
    return min(whole.step_ns for whole in wholes if not limit or whole.peak_bytes <= limit)


def chosen(search, devices, limit):
    fits = [e for e in search._estimates.of_all(devices) if not e.estimate.short_bytes]
    wholes = [planned.whole for planned in search.planned(fits)]
    return min(whole.step_ns for whole in wholes if not limit or whole.peak_bytes <= limit)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name, devices", PROGRAMS)
def test_the_chosen_one_is_within_2_percent_of_the_best(name, devices, topology):
    program = searched.program(name, "spmdx", samples=64)
    with spmdx.plan_only():
        spmdx.set_hardware("h100-80", topology=topology)
        held = 16 * sum(p.numel() for p in program.model.parameters())
        for limit in (0, held // 2 + 60_000):
            spmdx.set_memory_limit(limit or None)
            with planned_alone(program.model, (vars(program.optimizer),)):
                space = Space(devices, program.batch, limit, [0, 1, 2, 3], ["1f1b", "zb-h1"])
                search = Search(Program(program.step, program.model, program.optimizer), space)
                best = best_of_all(search, devices, limit)
                found = chosen(search, devices, limit)
            assert best <= found <= 1.02 * best
