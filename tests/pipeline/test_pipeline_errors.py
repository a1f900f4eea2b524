# SPDX-License-Identifier: Apache-2.0
"""The whole messages of spmdx.nn.pipeline, mark_stage and set_memory_limit."""

import re
import subprocess
import sys

import pytest
import spmdx
import torch
from messages import cases, message_of
from spmdx.pipelines import Schedule
from torch import nn


def mesh():
    return spmdx.Mesh(range(8), (4, 2), ("pipe", "data"))


def layers():
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))).to("spmdx")


def pipeline(**options):
    return spmdx.nn.pipeline(layers(), mesh(), **{"cuts": ["1", "2", "3"], **options})


def pattern(cuts):
    return pipeline(cuts=cuts)


def cut_along_pipe():
    model = layers()
    spmdx.mark_sharding(model[0].weight, mesh(), ("pipe", None))
    return spmdx.nn.pipeline(model, mesh())


class Reads(nn.Sequential):
    def forward(self, x):
        return super().forward(x * x.sum().item())


def reads_in_forward():
    model = Reads(*(nn.Linear(4, 4) for _ in range(4))).to("spmdx")
    spmdx.nn.pipeline(model, mesh())
    model(torch.ones(2, 4).to("spmdx"))


def fewer_layers_than_stages():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("spmdx")
    spmdx.nn.pipeline(model, mesh())
    model(torch.ones(2, 4).to("spmdx"))


PIPELINE = [
    (
        "no_module",
        lambda: spmdx.nn.pipeline([], mesh()),
        "HERE: pipeline: the first argument is a list. Expected a torch.nn.Module. Pass a "
        "model or a part of one.",
    ),
    (
        "axis",
        lambda: pipeline(axis="model"),
        "HERE: pipeline: Mesh(pipe=4, data=2) has no axis 'model'. Expected one of ('pipe', "
        "'data'). Pass axis='pipe'.",
    ),
    (
        "on_the_cpu",
        lambda: spmdx.nn.pipeline(nn.Linear(2, 2), mesh()),
        "HERE: pipeline: weight is on device 'cpu'. Expected a module on device 'spmdx'. Move"
        ' it there first: module.to("spmdx").',
    ),
    (
        "no_cuts",
        lambda: pipeline(cuts="1"),
        "HERE: pipeline: the cuts are '1'. Expected a list of names of modules, a dict from "
        "name patterns to stages, or None. Write ['layers.4'] for two stages.",
    ),
    (
        "cut_of_nothing",
        lambda: pipeline(cuts=["1", "2", "head"]),
        "HERE: pipeline: the cut 'head' names no module of the model. Expected names like "
        "'0', '1', '2'. Name the module with which a stage begins.",
    ),
    (
        "cut_of_a_number",
        lambda: pipeline(cuts=[1, 2, 3]),
        "HERE: pipeline: the cut 1 names no module of the model. Expected names like '0', "
        "'1', '2'. Name the module with which a stage begins.",
    ),
    (
        "order",
        lambda: pipeline(cuts=["2", "1", "3"]),
        "HERE: pipeline: the cuts ['2', '1', '3'] are not in the order of the model's "
        "modules. Expected each behind the one before, and none at the model itself. Sort "
        "them, or give a dict from name patterns to stages.",
    ),
    (
        "the_model",
        lambda: pipeline(cuts=["", "1", "2"]),
        "HERE: pipeline: the cuts ['', '1', '2'] are not in the order of the model's modules. "
        "Expected each behind the one before, and none at the model itself. Sort them, or give a "
        "dict from name patterns to stages.",
    ),
    (
        "too_few",
        lambda: pipeline(cuts=["1", "3"]),
        "HERE: pipeline: there are 2 cuts, and the mesh has 4 stages. Expected one less than "
        "stages. Name a module for each stage but the first.",
    ),
    (
        "pattern_of_nothing",
        lambda: pattern({"head.*": 0, "*": 1}),
        "HERE: pipeline: the pattern 'head.*' matches no parameter or buffer. Expected names "
        "like '0.weight', '0.bias', '1.weight'. Mend the pattern, or drop it.",
    ),
    (
        "stage_out_of_range",
        lambda: pattern({"0.*": 4, "*": 1}),
        "HERE: pipeline: the pattern '0.*' has stage 4. Expected a number from 0 to 3. Give "
        "it a stage of the mesh.",
    ),
    (
        "stage_of_a_word",
        lambda: pattern({"0.*": "first", "*": 1}),
        "HERE: pipeline: the pattern '0.*' has stage 'first'. Expected a number from 0 to 3. "
        "Give it a stage of the mesh.",
    ),
    (
        "no_pattern",
        lambda: pattern({"[0-2].*": 0}),
        "HERE: pipeline: no pattern matches '3.weight'. Expected a stage for every parameter "
        "and buffer. Add a pattern; a last one, '*', matches all that is left.",
    ),
    (
        "schedule",
        lambda: pipeline(schedule="2f2b"),
        "HERE: pipeline: no schedule is called '2f2b'. Expected 'gpipe', '1f1b', "
        "'interleaved:2' or another number of chunks, or 'zb-h1'. Write one of these, or read"
        " a table of your own.",
    ),
    (
        "schedule_of_a_number",
        lambda: pipeline(schedule=2),
        "HERE: pipeline: the schedule is 2. Expected a name, or a spmdx.pipelines.Schedule. "
        "Leave it out for '1f1b'.",
    ),
    (
        "chunks",
        lambda: pipeline(chunks=0),
        "HERE: pipeline: chunks is 0. Expected how many stages a device holds, at least 1. "
        "Leave it out for one.",
    ),
    (
        "chunks_of_another",
        lambda: pipeline(chunks=2, schedule="gpipe", cuts=None),
        "HERE: pipeline: the schedule 'gpipe' is for 1 stages on each device, and chunks is "
        "2. Expected the same. Pass chunks=1, or another schedule.",
    ),
    (
        "chunks_of_interleaved",
        lambda: pipeline(schedule="interleaved:2"),
        "HERE: pipeline: the schedule 'interleaved:2' is for 2 stages on each device, and "
        "chunks is 1. Expected the same. Pass chunks=2, or another schedule.",
    ),
    (
        "schedule_of_other_ranks",
        lambda: pipeline(schedule=Schedule.make("1f1b", 2, 4)),
        "HERE: pipeline: the schedule is for 2 ranks of 1 stages. Expected 4 ranks, the size "
        "of the axis, of 1 stages. Make it for these.",
    ),
    (
        "axis_that_cuts",
        cut_along_pipe,
        "HERE: pipeline: axis 'pipe' cuts a dim of the tensor, and is to hold stages. "
        "Expected an axis to do one of both. Cut by another axis, or put the stages along "
        "another one.",
    ),
    (
        "reads_in_forward",
        reads_in_forward,
        "HERE: pipeline: cuts are chosen by a plan of the first call, and that cannot be "
        "planned: THERE: the values of a tensor are wanted, but spmdx.plan_only() planned the"
        " step that makes them and did not run it. Expected a forward pass that reads no "
        "values of tensors. Name the cuts, as cuts=['layers.4'].",
    ),
    (
        "fewer_layers_than_stages",
        fewer_layers_than_stages,
        "HERE: pipeline: the model has 2 layers for 4 stages. Expected a layer for each "
        "stage. Use fewer stages, or cut at smaller modules.",
    ),
]

STAGES = [
    (
        "no_tensor",
        lambda: spmdx.mark_stage([], mesh()),
        "HERE: mark_stage: the first argument is a list. Expected a torch.Tensor on device "
        "'spmdx'. Pass a tensor, for a module one of its parameters.",
    ),
    (
        "axis",
        lambda: spmdx.mark_stage(layers(), mesh(), 0, "model"),
        "HERE: mark_stage: Mesh(pipe=4, data=2) has no axis 'model'. Expected one of ('pipe',"
        " 'data'). Pass axis='pipe'.",
    ),
    (
        "negative",
        lambda: spmdx.mark_stage(layers(), mesh(), -1),
        "HERE: mark_stage: the stage is -1. Expected a number from 0 on. Write 0 for the "
        "first stage along axis 'pipe'.",
    ),
    (
        "fraction",
        lambda: spmdx.mark_stage(layers(), mesh(), 0.5),
        "HERE: mark_stage: the stage is 0.5. Expected a number from 0 on. Write 0 for the "
        "first stage along axis 'pipe'.",
    ),
    (
        "most",
        lambda: spmdx.mark_stage(layers(), mesh(), 10**6),
        "HERE: mark_stage: 'pipe=1000000' is no place of Mesh(pipe=4, data=2). Expected an "
        "axis of the mesh and a stage from 0 to 4095. Pass the axis along which the stages "
        "lie.",
    ),
    (
        "on_the_cpu",
        lambda: spmdx.mark_stage(nn.Linear(2, 2), mesh()),
        "HERE: mark_stage: weight is on device 'cpu'. Expected a module on device 'spmdx'. "
        'Move it there first: module.to("spmdx").',
    ),
]

LIMITS = [
    (
        "word",
        lambda: spmdx.set_memory_limit("much"),
        "HERE: set_memory_limit: the limit is 'much'. Expected a whole number of bytes, a "
        "text of a number and B, KiB, MiB, GiB, TiB, or None for no limit. Write '24 GiB'.",
    ),
    (
        "flag",
        lambda: spmdx.set_memory_limit(True),
        "HERE: set_memory_limit: the limit is True. Expected a whole number of bytes, a text "
        "of a number and B, KiB, MiB, GiB, TiB, or None for no limit. Write '24 GiB'.",
    ),
    (
        "fraction",
        lambda: spmdx.set_memory_limit(1.5),
        "HERE: set_memory_limit: the limit is 1.5. Expected a whole number of bytes, a text "
        "of a number and B, KiB, MiB, GiB, TiB, or None for no limit. Write '24 GiB'.",
    ),
    (
        "nothing",
        lambda: spmdx.set_memory_limit(0),
        "HERE: set_memory_limit: the limit is 0. Expected more than 0 bytes, and less than "
        "2**63. Write None for no limit.",
    ),
]


@pytest.mark.parametrize("call, text", cases(PIPELINE))
def test_pipeline(call, text):
    message = message_of(spmdx.ShardingError, call)
    assert re.sub(r"test_pipeline_errors\.py:\d+", "THERE", message) == text


@pytest.mark.parametrize("call, text", cases(STAGES))
def test_mark_stage(call, text):
    assert message_of(spmdx.ShardingError, call) == text


ONE = (
    "HERE: the step that ends here has one microbatch, so while one of 4 stages works, the others "
    "wait: devices are idle for 3 times as long as they work, (p - 1) / m. Expected several "
    "backward passes in a step. Accumulate the gradients of more parts of the batch, as "
    "x.chunk(16), and read no value in between, which ends the step. Said once."
)
PROGRAM = f"""
import warnings
import spmdx, torch
spmdx.runtime.set_device_count(4)
mesh = spmdx.Mesh(range(4), (4,), ("pipe",))
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4))).to("spmdx")
spmdx.nn.pipeline(model, mesh)  # what is planned to choose cuts is not warned of
x = torch.ones(8, 4).to("spmdx")
def step(m):
    for part in x.chunk(m):
        loss = model(part).sum()
        loss.backward()
    return loss.item()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    step(4)
    model(x).sum().item()
    assert not said, said[0].message
    step(1)
    step(1)
(one,) = said
assert str(one.message) == {ONE!r}.replace("HERE", "<string>:13"), one.message
"""


def test_a_step_with_one_microbatch_is_warned_of_once():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call, text", cases(LIMITS))
def test_set_memory_limit(call, text):
    assert message_of(spmdx.ShardingError, call) == text
