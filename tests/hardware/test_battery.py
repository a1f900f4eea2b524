# SPDX-License-Identifier: Apache-2.0
"""What compilers have to stand, on those at hand; and that the battery finds what is broken."""

import broken_compilers
import pytest
import torch
from battery import NOT_CLAIMED, REFUSED, RIGHT, WRONG, Battery
from broken_compilers import IsRight
from compilers_of_tests import OpByOp
from gathered_calls import gathered, is_possible, is_random, known
from spmdx._compiling.in_force import _OWN
from spmdx._targets import pjrt
from spmdx._targets.inductor import Inductor
from spmdx._targets.stablehlo import raising
from spmdx._targets.xla import Xla
from spmdx.compilers import Compiler

SAMPLE = (
    *("aten.add.Tensor", "aten.mul.Tensor", "aten.mul.Scalar", "aten.add.Scalar", "aten.neg"),
    *("aten.gelu", "aten.sum.dim_IntList", "aten.mean", "aten.argmax", "aten.mm", "aten.relu"),
    *("aten._softmax", "aten.sort", "aten.max_pool2d_with_indices_backward", "aten.where.self"),
)
FEW = (
    *SAMPLE,
    *("aten.addmm", "aten.bmm", "aten._log_softmax", "aten.native_layer_norm", "aten.amax"),
    *("aten.native_layer_norm_backward", "aten._softmax_backward_data", "aten.gelu_backward"),
    *("aten.sigmoid", "aten.tanh_backward", "aten.rsqrt", "aten.pow.Tensor_Scalar", "aten.cat"),
    *("aten.clamp", "aten.repeat", "aten.index_select", "aten.maximum", "aten.logsumexp"),
    *("aten.var.correction", "aten.cumsum", "aten.div.Tensor", "aten.sub.Tensor", "aten.lt.Scalar"),
    *("aten.addcmul", "aten.addcdiv", "aten.lerp.Scalar", "aten.silu", "aten.erf", "aten.flip"),
)
MORE = (
    *("aten.exp", "aten.log", "aten.sqrt", "aten.abs", "aten.minimum", "aten.le.Tensor"),
    *("aten.eq.Tensor", "aten.permute", "aten.view", "aten.slice.Tensor", "aten.select.int"),
    *("aten.tanh", "aten.floor", "aten.expand", "aten.reciprocal", "aten.log1p", "aten.sin"),
)
VIEWS = (
    *("aten.permute", "aten.view", "aten.slice.Tensor", "aten.select.int", "aten.expand"),
    *("aten.diagonal", "aten.unfold", "aten.conj_physical"),
)
# Which of the checks finds a compiler that is broken, and what it says.
FOUND = {
    "IsAThousandthOff": "Expected",
    "IsOffByOne": "Expected",
    "LosesNan": "Expected nan",
    "LosesSigns": "Expected -0",
    "GivesDoubles": "is of f64. Expected f32",
    "GivesRows": "has shape [1]. Expected []",
    "FailsForNothing": "a buffer of no bytes",
    "WritesToInputs": "it writes to input 0",
    "GivesMemoryTwice": "a result of a run lies where that of an earlier run does",
    "KeepsParams": "with other parameters",
    "IsForOneThread": "run by many threads",
    "ClaimsRandom": "it draws numbers",
    "RaisesForGelu": "the chip is on fire",
    "DropsResults": "results. Expected",
}


@pytest.fixture(scope="module")
def calls():
    return gathered()


def test_the_tables_reach_nearly_all_ops(calls):
    possible = {name for name in known() if is_possible(name)}
    reached = {name for name, _ in calls}
    assert len(possible) > 500 and len(possible - reached) < 30
    assert not [name for name in reached if is_random(name)]


def test_cases_differ_in_what_matters(calls):
    battery = Battery(IsRight(), calls)
    cases = list(battery.cases_of("aten.add.Tensor", ["f32"]))
    shapes = [[t.shape for kind, t in case.inputs if not kind.is_number] for case in cases]
    assert {case.check for case in cases} == {"values", "special numbers", "sizes"}
    assert any(len(row) == 2 and row[0] != row[1] for row in shapes), "nothing is broadcast"
    assert any(t.numel() == 0 for case in cases for _, t in case.inputs)
    assert any(kind.is_number for case in cases for kind, _ in case.inputs)


def test_a_compiler_that_is_right_is_found_right_in_all_ops_and_dtypes(calls):
    report = Battery(IsRight(), calls).run()
    assert report.failures() == []
    assert len(report.claimed) - len(report.unreached) > 500 and len(report.rows) > 9000
    checks = {"values", "special numbers", "sizes", "params", "chains", "memory"}
    assert {row.check for row in report.rows if row.state == RIGHT} == checks


@pytest.mark.parametrize("name", FOUND)
def test_what_is_broken_is_found(calls, name):
    report = Battery(getattr(broken_compilers, name)(), calls).run(SAMPLE, ["f32", "i64"])
    notes = [row.note for row in report.rows if row.state == WRONG]
    assert any(FOUND[name] in note for note in notes), notes[:5]


@pytest.mark.parametrize("op", SAMPLE)
def test_a_thousandth_is_found_in_each_op_of_floats(calls, op):
    makes_places = op in ("aten.argmax",)
    report = Battery(broken_compilers.IsAThousandthOff(), calls).run([op], ["f32", "f64"])
    assert report.state(op) == (RIGHT if makes_places else WRONG)


def test_views_are_no_new_memory(calls):
    report = Battery(OpByOp(), calls).run(["aten.permute", "aten.mm"], ["f32"])
    assert report.state("aten.permute") == WRONG and report.state("aten.mm") == RIGHT
    assert "a result lies where an input does" in report.failures()[0].note


class GivesViews(OpByOp):
    views = True


class HidesViews(GivesViews):
    """As arrays of NumPy, of which PyTorch does not know where they lie."""

    def load(self, segment, folder):
        runs = super().load(segment, folder)
        return lambda tensors: [torch.from_numpy(result.numpy()) for result in runs(tensors)]


def test_views_are_right_where_a_compiler_says_so_and_pytorch_knows(calls):
    ops = [*VIEWS, "aten.mm"]
    report = Battery(GivesViews(), calls).run(ops, ["f32"])
    assert report.failures() == [] and not report.unreached
    report = Battery(HidesViews(), calls).run(ops, ["f32"])
    assert report.state("aten.permute") == WRONG and report.state("aten.mm") == RIGHT


def test_one_op_does_not_hide_others(calls):
    for name, state in (("RefusesGelu", REFUSED), ("RaisesForGelu", WRONG)):
        report = Battery(getattr(broken_compilers, name)(), calls).run(SAMPLE, ["f32"])
        states = {op: report.state(op) for op in SAMPLE}
        assert states.pop("aten.gelu") == state and set(states.values()) == {RIGHT}


def test_memory_that_is_kept_is_found(calls):
    battery = Battery(broken_compilers.KeepsMemory(), calls)
    (row,) = battery.of_memory(["aten.add.Tensor"])
    assert row.state == WRONG and "MB more after" in row.note
    (row,) = Battery(IsRight(), calls).of_memory(["aten.add.Tensor"])
    assert row.state == RIGHT


def test_chains_are_found_wrong_and_left_where_an_op_is_not_claimed(calls):
    wrong = Battery(broken_compilers.IsAThousandthOff(), calls).of_chains(known())
    assert [row.state for row in wrong] == [WRONG] * 4
    left = Battery(IsRight(), calls).of_chains(["aten.mm"])
    assert [row.state for row in left] == [NOT_CLAIMED] * 4


def test_inductor_stands_it(calls):
    battery = Battery(Inductor(), calls, most=1, batch=200)
    report = battery.run(FEW + VIEWS, ["f32"])
    assert report.failures() == [] and len(report.claimed) > 43 and not report.unreached
    chains = battery.of_chains(battery.claims().claimed)
    assert [row.state for row in chains] == [RIGHT] * 4, chains


@pytest.mark.parametrize(("name", "least"), [("xla", 300), ("onnxruntime", 300)])
def test_those_that_take_most_ops_stand_it(calls, name, least):
    pytest.importorskip("jaxlib" if name == "xla" else name)
    report = Battery(_OWN[name](), calls, most=1).run(dtypes=["f32"])
    assert not [row for row in report.rows if row.state == WRONG]
    assert len([op for op in report.claimed if report.state(op) == RIGHT]) >= least


class Copied(Xla):
    """On a client that copies operands and results, as that of a TPU does."""

    def load(self, segment, folder):
        runs = pjrt.cpu(copies=True).loaded((folder / "segment.xla").read_bytes())
        return raising(runs, len(segment.outputs))


def test_operands_that_are_copied_stand_it_in_all_dtypes(calls):
    pytest.importorskip("jaxlib")
    battery = Battery(Copied(), calls, most=1)
    report = battery.run(SAMPLE)
    assert not [row for row in report.rows if row.state == WRONG]
    right = [row for row in report.rows if row.state == RIGHT]
    assert {row.dtype for row in right} == set(Compiler.dtypes)
    assert {row.check for row in right} == {"values", "special numbers", "sizes"}
    assert [row.state for row in battery.of_memory(["aten.add.Tensor"])] == [RIGHT]
    # Of no elements there is no softmax in StableHLO, however operands come.
    assert [op for op in SAMPLE if report.state(op) != RIGHT] == ["aten._softmax"]


def test_hls_and_iree_stand_it(calls):
    for name, ops in (("hls", FEW + MORE), ("iree", FEW)):
        if name == "iree":
            pytest.importorskip("iree.compiler")
        report = Battery(_OWN[name](), calls, most=1, batch=16).run(ops, ["f32"])
        assert not [row for row in report.rows if row.state == WRONG], name
        right = {row.op for row in report.rows if row.state == RIGHT}  # in sizes that it takes
        assert len(right) >= 30, name
