# SPDX-License-Identifier: Apache-2.0
"""A plan does not depend on the order in which things are listed, nor on hashes.

Training steps are traced, their text is shuffled and planned again by spmdx-opt, each time in a new
process, with another hash seed and other addresses.
"""

import collections
import functools
import hashlib
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

HELPERS = pathlib.Path(__file__).parent / "python" / "helpers"
# 8 devices; the annotated parameters are also cut over "data".
STEPS = {
    "gpt, fully sharded": ("gpt", "(8,)", "('data',)"),
    "gpt, data and tensor parallel": ("gpt", "(4, 2)", "('data', 'model')"),
    "convolutions, fully sharded": ("conv", "(8,)", "('data',)"),
    "encoder and decoder, both": ("transformer", "(4, 2)", "('data', 'model')"),
}
TRACE = """
import models
name, shape, axes = {}, {}, {}
models.run(name, models.data(name, [16, 16]), models.Plan(shape, axes, True), clip=1.0)
"""
NAME = re.compile(r"%(\d+)")
PARAMETER = re.compile(r"(real|int)#\d+")


@functools.cache
def traced(step, folder):
    """The longest graph that a run of two training steps traces, as text."""
    name, shape, axes = STEPS[step]
    environment = {**os.environ, "SPMDX_DUMP": str(folder), "OMP_NUM_THREADS": "1"}
    script = TRACE.format(repr(name), shape, axes)
    subprocess.run([sys.executable, "-c", script], cwd=HELPERS, env=environment, check=True)
    return max((p.read_text() for p in folder.glob("*-00-traced.txt")), key=len)


class Text:
    """Graph text by kind of line: the mesh, inputs, nodes, and what is said of them."""

    def __init__(self, text):
        lines = [re.sub(r"\s+//.*$", "", line) for line in text.splitlines() if line.strip()]
        self.mesh, *lines = lines
        self.inputs = [line for line in lines if re.match(r"%\d+( : .*)? = input ", line)]
        self.nodes = [line for line in lines if line.startswith("%") and line not in self.inputs]
        self.said = [line for line in lines if not line.startswith("%")]

    def renumbered(self, nodes):
        """The same lines with values and parameters numbered as they come."""
        number, parameter = {}, {}
        for line in self.inputs + nodes:
            for name in made_by(line):
                number[name] = len(number)

        def again(line):
            line = NAME.sub(lambda m: f"%{number[m[1]]}", line)
            return PARAMETER.sub(
                lambda m: f"{m[1]}#{parameter.setdefault(m[0], len(parameter))}", line
            )

        return "\n".join([self.mesh, *map(again, self.inputs + nodes + self.said), ""])


def made_by(line):
    return NAME.findall(line.split(" = ", 1)[0])


def read_by(line):
    return NAME.findall(line.split(" = ", 1)[1])


def any_order(nodes, rng):
    """Nodes in a random order in which operands still come first."""
    maker = {name: i for i, line in enumerate(nodes) for name in made_by(line)}
    needs = [{maker[name] for name in read_by(line) if name in maker} for line in nodes]
    users = collections.defaultdict(list)
    for i, operands in enumerate(needs):
        for operand in operands:
            users[operand].append(i)
    missing = [len(operands) for operands in needs]
    ready, order = [i for i, n in enumerate(missing) if n == 0], []
    while ready:
        order.append(ready.pop(rng.randrange(len(ready))))
        for user in users[order[-1]]:
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    return [nodes[i] for i in order]


def shuffled(text, rng, nodes_too=False):
    graph = Text(text)
    rng.shuffle(graph.inputs)
    rng.shuffle(graph.said)
    return graph.renumbered(any_order(graph.nodes, rng) if nodes_too else graph.nodes)


def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def plan_hash(text):
    """Of a plan, with the order of its nodes; neither names nor the order of other lines count."""
    graph = Text(text)
    inputs = {made_by(line)[0]: line for line in graph.inputs}
    order = dict.fromkeys(name for line in graph.nodes for name in read_by(line) if name in inputs)
    graph.inputs = [inputs.pop(name) for name in order] + sorted(
        inputs.values(), key=lambda line: NAME.sub("", line)
    )
    mesh, *lines = graph.renumbered(graph.nodes).splitlines()
    said = len(lines) - len(graph.said)
    return digest(mesh, lines[:said], sorted(lines[said:]))


def layout_hash(text):
    """Of what every value is computed from and how it lies; the order of nodes does not count."""
    graph, known, items = Text(text), {}, []
    for line in graph.inputs:
        known[made_by(line)[0]] = digest(NAME.sub("", line))
    for line in graph.nodes:
        left, right = PARAMETER.sub(r"\1", line).split(" = ", 1)
        items.append(digest(NAME.sub("", left), NAME.sub(lambda m: known[m[1]], right)))
        for result, name in enumerate(made_by(line)):
            known[name] = digest(items[-1], result)
    items += [NAME.sub(lambda m: known[m[1]], line) for line in graph.said]
    return digest(graph.mesh, sorted(items), sorted(known.values()))


def run_passes(spmdx_opt, text, passes, seed):
    command = [spmdx_opt, *(word for name in passes for word in ("--pass", name))]
    command += ["--hash-seed", str(seed), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folders = {step: tmp_path_factory.mktemp("traced") for step in STEPS}
    return lambda step: traced(step, folders[step])


@pytest.mark.parametrize("step, count", list(zip(STEPS, (100, 20, 20, 20), strict=True)))
def test_plans_do_not_depend_on_the_order_of_lines_or_on_hashes(step, count, traces, spmdx_opt):
    text = traces(step)
    passes = subprocess.run([spmdx_opt, "--passes"], capture_output=True, text=True).stdout.split()
    found = set()
    for seed in range(count):
        program = shuffled(text, random.Random(seed)) if seed else text
        found.add(plan_hash(run_passes(spmdx_opt, program, passes, 2 * seed + 1)))
        assert len(found) == 1, f"shuffle {seed} has another plan"


@pytest.mark.parametrize("step", STEPS)
def test_layouts_do_not_depend_on_the_order_of_independent_ops(step, traces, spmdx_opt):
    text = traces(step)
    passes = ("simplify", "split-constants", "propagate")
    found = set()
    for seed in range(20):
        program = shuffled(text, random.Random(seed), nodes_too=True)
        found.add(layout_hash(run_passes(spmdx_opt, program, passes, 2 * seed + 1)))
        assert len(found) == 1, f"shuffle {seed} has other layouts"


def test_the_hashes_see_what_differs(traces):
    text = traces("gpt, fully sharded")
    other = text.replace("data", "datum")
    assert plan_hash(text) != plan_hash(other) and layout_hash(text) != layout_hash(other)
    assert plan_hash(shuffled(text, random.Random(1), True)) != plan_hash(text)
    assert layout_hash(shuffled(text, random.Random(1), True)) == layout_hash(text)
