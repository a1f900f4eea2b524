# SPDX-License-Identifier: Apache-2.0
"""Random programs as functions: replayed calls give what traced ones do, bit for bit.

python tests/python/replay/test_random_replays.py 0 5000      # the programs of these seeds
"""

import collections
import os
import sys
from pathlib import Path

import pytest
import spmdx
import torch
import torch.nn.functional as F

HELPERS = Path(__file__).parents[1] / "helpers"
sys.path[:0] = [str(HELPERS), str(HELPERS / "program")]  # pytest has them; a script does not
from program_text import drawn  # noqa: E402
from random_programs import draft  # noqa: E402

A_TEST = 50
PROGRAMS = int(os.environ.get("RANDOM_PROGRAMS", "300"))  # `--count N`
CALLS = 7


def total_of(values):
    """A number that depends on all of them that need a gradient; None where there is none."""
    parts = [v for v in values if v.requires_grad]
    real = [torch.view_as_real(v) if v.is_complex() else v for v in parts]
    return sum(v.float().square().sum() for v in real) if real else None


def function_of(program, mesh):
    """The lines of a program as a function of its first inputs; the others are state it reads."""
    given = [i.name for i in program.inputs if not i.gradient]
    lines = [line for line in program.lines if not line.strip().startswith("step(")]
    body = "\n".join("    " + part for line in lines for part in line.split("\n"))
    names = ", ".join(program.made())
    tail = "    total = total_of(values)\n    if total is not None and total.requires_grad:\n"
    tail += "        total.backward()\n"
    text = f"def function({', '.join(given)}):\n{body}\n    values = [{names}]\n{tail}"
    text += "    return values"
    space = {"torch": torch, "F": F, "total_of": total_of}
    space["mark"] = lambda value, spec: spmdx.mark_sharding(value, mesh, spec)
    exec(compile(text, "random_function.py", "exec"), space)
    return given, space


def values_of(program, mesh, seed, names):
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for i in program.inputs:
        value = eval(drawn(i), {"torch": torch, "generator": generator}).to("spmdx")
        if i.name not in names:
            continue
        made[i.name] = value.requires_grad_(i.gradient)
        if i.spec is not None:
            spmdx.mark_sharding(made[i.name], mesh, i.spec)
    return made


def results_of(program, call, state):
    """What a call gives and leaves, on the CPU; None where the program is refused."""
    for tensor in state.values():
        tensor.grad = None
    values = [value.detach().cpu() for value in call()]
    gradients = [t.grad.cpu() for t in state.values() if t.grad is not None]
    return values + gradients + [tensor.detach().cpu() for tensor in state.values()]


def compared(seed):
    """How often a program was replayed; None where it cannot be a function."""
    program = draft(seed)
    mesh = program.make_mesh()
    functions, states = [], []
    for _ in range(2):
        given, space = function_of(program, mesh)
        kept = {i.name for i in program.inputs} - set(given)
        states.append(values_of(program, mesh, seed, kept))
        space.update(states[-1])
        functions.append(space["function"])
    functions[1] = spmdx.compile(functions[1])
    for call in range(CALLS):
        got = []
        for function, state in zip(functions, states, strict=True):
            spmdx.manual_seed(call)
            arguments = values_of(program, mesh, seed + call % 3, given).values()
            spmdx.mark_step()
            try:
                got.append(results_of(program, lambda f=function, a=arguments: f(*a), state))
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                if os.environ.get("SHOW"):
                    raise
                got.append(type(error))
        if isinstance(got[0], type):
            assert got[0] is got[1] or isinstance(got[1], type), f"seed {seed}: {got[1]}"
            return None
        assert not isinstance(got[1], type), f"seed {seed}, call {call}: {got[1]}"
        for i, (a, b) in enumerate(zip(*got, strict=True)):
            same = a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
            assert same, f"seed {seed}, call {call}, value {i}\n{program.text()}"
    if os.environ.get("SHOW"):
        print(seed, functions[1].replayed, functions[1].reasons)
    return functions[1].replayed


def bits(tensor):
    """Its elements as bytes, where all NaNs are one."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.is_floating_point():
        tensor = tensor.nan_to_num(nan=1.2345)
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def counted(seeds):
    sums = collections.Counter()
    for seed in seeds:
        replayed = compared(seed)
        sums["refused" if replayed is None else "replayed" if replayed else "traced"] += 1
    return sums


@pytest.mark.filterwarnings("ignore:.*was compiled and is traced")
@pytest.mark.parametrize("first", range(0, PROGRAMS, A_TEST))
def test_random_functions_are_replayed_bit_for_bit(first):
    sums = counted(range(first, min(first + A_TEST, PROGRAMS)))
    assert sums["replayed"] >= sums.total() // 2, sums


if __name__ == "__main__":
    print(counted(range(*map(int, sys.argv[1:]))))
