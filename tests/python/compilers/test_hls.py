# SPDX-License-Identifier: Apache-2.0
"""Circuits as C++: what g++ makes of them gives PyTorch's numbers, in about the cycles foreseen."""

import concurrent.futures
import dataclasses
import math
import re
import shutil
import subprocess

import pytest
import spmdx
import torch
from hls_networks import FUNCTIONS, NETWORKS, OPS, Ops, fixed_program, of_ops
from spmdx.compilers import Hls, NotTaken, hls_project, segment_of

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="no g++, or no make"
)
FIXED = {"fixed<16,6>": 2.0**-10, "fixed<24,8>": 2.0**-16}
QUANTA = 8  # by which what a network of fixed points gives may be off, of results below 1


@dataclasses.dataclass
class Run:
    """What the testbench has told."""

    errors: list[float]
    cycles: dict[str, int]
    latency: int
    interval: int


def run(folder):
    made = subprocess.run(
        ["make", "-s", "LIMIT=inf"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0 and not made.stderr, made.stderr[-2000:]
    stages = re.findall(r"^stage (\S+): (\d+) cycles", made.stdout, re.MULTILINE)
    return Run(
        [float(error) for error in re.findall(r"largest error (\S+) of", made.stdout)],
        {name: int(count) for name, count in stages},
        int(re.search(r"^latency: (\d+)", made.stdout, re.MULTILINE)[1]),
        int(re.search(r"^interval: (\d+)", made.stdout, re.MULTILINE)[1]),
    )


def built(module, inputs, folder, numbers):
    """Projects of several kinds of numbers, and their runs."""
    segment, constants = segment_of(module.eval(), inputs)
    projects = [
        hls_project(segment, folder / str(i), number, constants, inputs)
        for i, number in enumerate(numbers)
    ]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return projects, list(pool.map(lambda project: run(project.folder), projects))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_give_what_pytorch_does_in_the_cycles_foreseen(name, tmp_path):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    numbers = ["float", "fixed<24,8>" if "transformer" in name else "fixed<16,6>"]
    projects, runs = built(make(), [torch.randn(shape)], tmp_path, numbers)
    assert max(runs[0].errors) < 1e-5
    assert max(runs[1].errors) < QUANTA * FIXED[numbers[1]]
    for project, made in zip(projects, runs, strict=True):
        assert abs(project.latency - made.latency) <= 0.1 * made.latency
        assert project.interval == made.interval


@pytest.mark.parametrize("number", ["float", "fixed<24,8>"])
def test_ops_give_what_pytorch_does(number, tmp_path):
    (project,), (made,) = built(Ops(OPS), of_ops(), tmp_path, [number])
    assert abs(project.latency - made.latency) <= 0.1 * made.latency
    limit = 1e-5 if number == "float" else QUANTA * FIXED[number]
    errors = dict(zip(OPS, made.errors, strict=True))
    assert {name: error for name, error in errors.items() if not error <= limit} == {}


def as_compiled(module, inputs, folder):
    """What the compiler's kernel of a module gives, and the module itself."""
    segment, constants = segment_of(module.eval(), inputs)
    folder.mkdir()
    Hls().compile(segment, folder)
    with torch.no_grad():
        return Hls().load(segment, folder)([*inputs, *constants.values()]), module(*inputs)


def test_kernels_give_what_pytorch_does(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Softmax(-1))
    (found,), expected = as_compiled(module, [torch.randn(5, 6)], tmp_path / "kernel")
    torch.testing.assert_close(found, expected)


def test_weights_may_come_as_well(tmp_path):
    torch.manual_seed(0)
    module, shape = NETWORKS["images, largest"][0](), NETWORKS["images, largest"][1]
    (found,), expected = as_compiled(module, [torch.randn(shape)], tmp_path / "kernel")
    torch.testing.assert_close(found, expected)


def test_modules_that_write_to_their_tensors_and_return_many(tmp_path):
    class Writes(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            y[:, 0] += 1
            return y, {"sum": y.sum()}

    found, (y, rest) = as_compiled(Writes(), [torch.randn(3, 4)], tmp_path / "kernel")
    torch.testing.assert_close(tuple(found), (y, rest["sum"]))


def test_truth_values_come_and_go(tmp_path):
    class Chosen(torch.nn.Module):
        def forward(self, which, x):
            return torch.where(which, x, -x), ~which

    inputs = [torch.tensor([True, False, True]), torch.tensor([1.0, 2.0, 3.0])]
    found, expected = as_compiled(Chosen(), inputs, tmp_path / "kernel")
    assert all(map(torch.equal, found, expected))


def test_zeros_have_their_signs_and_truth_values_are_padded(tmp_path):
    class Bounds(torch.nn.Module):
        def forward(self, which, x):
            return torch.nn.functional.pad(which, (1, 2), value=True), x.abs(), -x

    inputs = [torch.tensor([True, False]), torch.tensor([-0.0, 0.0, -2.0, torch.inf, -torch.inf])]
    found, (padded, *others) = as_compiled(Bounds(), inputs, tmp_path / "kernel")
    assert torch.equal(found[0], padded)
    for result, expected in zip(found[1:], others, strict=True):
        assert torch.equal(result, expected) and torch.equal(result.signbit(), expected.signbit())


def test_ops_are_those_of_rows_and_what_is_put_together_of_them():
    known = ["aten.mm", "aten.gelu", "aten.sort", "aten.bernoulli.p", "aten.embedding"]
    assert list(Hls().ops(known)) == ["aten.mm", "aten.gelu"]


def project_of(module, shape, folder, **options):
    segment, constants = segment_of(module.eval(), [torch.zeros(shape)])
    return hls_project(segment, folder, constants=constants, **options)


def test_more_lanes_take_less_time_and_more_multipliers(tmp_path):
    one, many = (
        project_of(
            torch.nn.Linear(32, 64), (4, 32), tmp_path / str(n), number="fixed<16,6>", unroll=n
        )
        for n in (1, 16)
    )
    assert many.latency < one.latency / 4 and many.dsp == 16 * one.dsp


def test_projects_are_for_the_vendors_tool_as_well(tmp_path):
    project = project_of(torch.nn.Linear(4, 4), (2, 4), tmp_path / "made", number="fixed<16,6>")
    names = {path.name for path in project.folder.iterdir()}
    assert names >= {"top.cpp", "top.h", "weights.h", "testbench.cpp", "Makefile", "vendor.tcl"}
    assert "set_top top" in (project.folder / "vendor.tcl").read_text()
    assert project.report in (project.folder / "README.md").read_text()
    text = (project.folder / "top.cpp").read_text()
    for pragma in ("INTERFACE m_axi", "DATAFLOW", "PIPELINE II=1", "ARRAY_PARTITION", "UNROLL"):
        assert f"#pragma HLS {pragma}" in text


def test_a_wrong_result_is_an_error_of_make(tmp_path):
    project = project_of(torch.nn.Linear(4, 4), (2, 4), tmp_path / "made")
    (project.folder / "data" / "expected0.bin").write_bytes(torch.ones(8).numpy().tobytes())
    assert subprocess.run(["make", "-s"], cwd=project.folder, capture_output=True).returncode


def test_what_is_not_written_is_refused_by_its_op(tmp_path):
    with pytest.raises(NotTaken, match="not written for HLS: it is transposed"):
        project_of(torch.nn.ConvTranspose1d(1, 1, 2), (1, 1, 4), tmp_path)
    with pytest.raises(NotTaken, match="there is no table of it for a fixed point"):
        project_of(Ops({"tan": torch.tan}), (4,), tmp_path, number="fixed<8,4>")


@pytest.mark.parametrize(
    "number", ["half", "fixed<16>", "fixed<40,8>", "fixed<8,8>", "fixed<9,6> "]
)
def test_numbers_that_are_none_are_refused(number, tmp_path):
    with pytest.raises((NotTaken, spmdx.ShardingError), match="is no"):
        project_of(torch.nn.ReLU(), (4,), tmp_path, number=number)


def test_fixed_points_are_rounded_and_end_as_told_and_functions_of_them_are_near(tmp_path):
    """Functions of all numbers that there are: see hls_networks.fixed_program."""
    project_of(torch.nn.ReLU(), (4,), tmp_path, number="fixed<16,6>")
    (tmp_path / "test.cpp").write_text(fixed_program())
    command = ["g++", "-std=c++17", "-O1", "-Wno-unknown-pragmas", "-o", "test", "test.cpp"]
    subprocess.run(command, cwd=tmp_path, check=True)
    told = subprocess.run(["./test"], cwd=tmp_path, check=True, capture_output=True, text=True)
    errors = {name: float(error) for name, error in map(str.split, told.stdout.splitlines())}
    assert set(errors) == {*FUNCTIONS} and not any(map(math.isnan, errors.values()))
    assert {name: error for name, error in errors.items() if error > 0.6} == {}
