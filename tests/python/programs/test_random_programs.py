# SPDX-License-Identifier: Apache-2.0
"""Random programs on random meshes and specs equal plain PyTorch, values and gradients.

python tests/python/programs/test_random_programs.py 17        # run the program of one seed again
"""

import collections
import os
import re
import sys
from pathlib import Path

import pytest
import spmdx
import torch

HELPERS = Path(__file__).parents[1] / "helpers"
sys.path[:0] = [str(HELPERS), str(HELPERS / "program")]  # pytest has them; a script does not
import program_oracle  # noqa: E402
import random_programs as programs  # noqa: E402
from hardware import ON_GPU  # noqa: E402
from program_oracle import judge  # noqa: E402
from program_shrink import shrink  # noqa: E402
from random_programs import draft  # noqa: E402

A_TEST = 60
PROGRAMS = int(os.environ.get("RANDOM_PROGRAMS", "3000"))  # `--count N`


@pytest.fixture
def poison():
    spmdx._C.set_checks(poison=True)
    yield
    spmdx._C.set_checks()


def report(program, said):
    small, found = shrink(program)
    return f"seed {program.seed}: {said}\nmade smaller: {found}\n\n{small.text()}"


@pytest.mark.parametrize("first", range(0, PROGRAMS, A_TEST))
def test_sharded_programs_equal_unsharded_ones(first, poison):
    verdicts, unsteady_doubles = collections.Counter(), 0
    for seed in range(first, min(first + A_TEST, PROGRAMS)):
        program = draft(seed)
        verdict, said = judge(program)
        verdicts[verdict] += 1
        unsteady_doubles += verdict == "unsteady" and program.inputs[0].dtype == torch.float64
        assert verdict != "different", report(program, said)
    assert unsteady_doubles <= 2, f"{unsteady_doubles} in doubles are at the mercy of rounding"
    most = A_TEST // (4 if ON_GPU else 20)
    assert verdicts["unsteady"] <= most, f"{verdicts}: at the mercy of rounding"
    assert verdicts["refused"] <= 2, f"{verdicts}: not even plain PyTorch runs them"


def test_a_seed_makes_one_program_and_other_seeds_make_others():
    texts = [draft(seed).text() for seed in range(50)]
    assert texts == [draft(seed).text() for seed in range(50)] and len(set(texts)) == 50


def test_the_programs_use_every_op_and_every_mesh():
    drafted = [draft(seed) for seed in range(800)]
    assert {p.mesh for p in drafted} == set(programs.MESHES)
    assert {p.steps for p in drafted} == {1, 2}
    assert {p.inputs[0].dtype for p in drafted} == set(programs.SMOOTH)
    assert any(0 in i.shape and i.spec for p in drafted for i in p.inputs)
    text = "\n".join(line for p in drafted for line in p.lines)
    words = """
    @ F.linear( torch.einsum( .reshape( .unflatten( .flatten( .permute( .expand .sum( .mean(
    .var( .softmax( .log_softmax( .logsumexp( .cumsum( .sort( .topk( .argmax( F.layer_norm(
    F.group_norm( F.batch_norm( F.embedding( F.cross_entropy( torch.index_add( .scatter_add(
    .gather( .index_select( torch.cat( F.pad( .mul_( .zero_( .copy_(
    F.scaled_dot_product_attention( F.conv F.max_pool torch.where( .tril( mark( torch.arange(
    label_smoothing ignore_index is_causal=True reduction='none' .unfold( .as_strided( .diagonal(
    .flip( channels_last .conj() .resolve_conj() .resolve_neg() torch.complex( .bool() ^
    .to(torch.uint8) .to(torch.int32)"""
    missing = [word for word in words.split() if word not in text]
    assert not missing, f"no program of 800 has {missing}"


def test_the_programs_are_sharded_and_communicate():
    before = spmdx.debug.counters()["collectives"]
    for seed in range(20):
        program = draft(seed)
        program_oracle.run(program, "spmdx", program.make_mesh())
    assert spmdx.debug.counters()["collectives"] - before > 60


def wrong_run(monkeypatch, break_value):
    """Makes every sharded run return something else for the values that `break_value` picks."""
    right = program_oracle.run

    def run(program, device, mesh=None, **options):
        found = right(program, device, mesh, **options)
        return found if mesh is None else {n: break_value(program, n, v) for n, v in found.items()}

    monkeypatch.setattr(program_oracle, "run", run)


def test_a_wrong_result_is_found_and_made_smaller(monkeypatch):
    def break_value(program, name, value):
        makes = next((line for line in program.lines if line.startswith(f"{name} = ")), "")
        return value * (1 + 1e-7) if ".tanh()" in makes and value.is_floating_point() else value

    wrong_run(monkeypatch, break_value)
    program = next(p for p in map(draft, range(300)) if judge(p)[0] == "different")
    small, said = shrink(program)
    assert "differs by" in said
    assert 1 <= len(small.lines) <= 3 and any(".tanh()" in line for line in small.lines)
    assert len(small.lines) < len(program.lines) and all(i.spec is None for i in small.inputs)


def test_a_layer_whose_input_wants_no_gradient_gives_none():
    """Found by random programs: PyTorch's shape function promises what its kernel leaves out."""
    for line in ("F.batch_norm(v0, None, None, v1, training=True)", "F.group_norm(v0, 2, v1)"):
        inputs = (programs.Input("v0", (4, 6, 5), gradient=False), programs.Input("v1", (6,)))
        for spec in (("x", None, None), (None, "x", None), None):
            marked = (programs.dataclasses.replace(inputs[0], spec=spec), inputs[1])
            program = programs.Program(1, ((0, 1), (2,)), marked, (f"v2 = {line}",))
            assert judge(program) == ("equal", None)


def test_a_program_at_a_tie_is_called_unsteady(monkeypatch):
    inputs = (programs.Input("v0", (4,)),)
    lines = ("v1 = v0 - v0 * 3.0 + v0 + v0", "v2 = (v1 > 0.0).to(torch.float64) * 2.0")
    program = programs.Program(1, ((0, 1), (2,)), inputs, lines)
    wrong_run(monkeypatch, lambda program, name, value: 2.0 - value if name == "v2" else value)
    assert judge(program)[0] == "unsteady"
    steady = programs.Program(1, ((0, 1), (2,)), inputs, ("v2 = v0 * 2.0",))
    assert judge(steady)[0] == "different"


def test_the_text_of_a_program_runs_by_itself(capsys):
    program = next(p for p in map(draft, range(100)) if p.steps == 2 and "mark(" in p.text())
    text = re.sub(r"spmdx.runtime.set_device_count\(\d\)\n", "", program.text())
    exec(compile(text, "program.py", "exec"), {})
    assert capsys.readouterr().out == "equal\n"


def test_results_off_by_more_than_rounding_are_told():
    with pytest.raises(AssertionError, match="differs by"):
        program_oracle.assert_equal(torch.ones(3) * (1 + 1e-5), torch.ones(3), "output 0")


if __name__ == "__main__":
    wanted = draft(int(sys.argv[1]))
    print(wanted.text())
    verdict, what = judge(wanted)
    print(verdict if what is None else report(wanted, what))
