# SPDX-License-Identifier: Apache-2.0
"""A fixed third of torch's ops and modules, and its optimizers; `make conformance` runs all.

Of other dtypes than f32 it is a smaller share, and few samples.
"""

import dataclasses

import module_judge
import op_judge
import optim_judge
import pytest
import spmdx
from composites import least_work
from exceptions import EXCEPTIONS
from settings import DTYPES, EVEN, UNEVEN, Setting

# They take turns, so that each mesh sees many entries.
SETTINGS = [
    Setting((4,), EVEN, 6, 6),
    Setting((3,), UNEVEN, 6, 6),
    Setting((2, 2), EVEN, 6, 6),
    Setting((2,), UNEVEN, 6, 6),
]
OPS = [op for op in op_judge.entries() if op_judge.name_of(op) not in EXCEPTIONS][::3]
MODULES = module_judge.entries()[::3]
# One of so many entries. What these are differs from dtype to dtype, for op_db's tables do.
SHARE = {"bf16": 9, "f16": 18, "i64": 18, "bool": 18, "c64": 18}
OF_DTYPES = [
    (short, at)
    for short, share in SHARE.items()
    for at in range(0, len(op_judge.entries(DTYPES[short])), share)
]
NORMS = [m for m in module_judge.entries() if "Norm" in module_judge.name_of(m)]
OPTIMIZERS = [o for o in optim_judge.entries() if optim_judge.name_of(o) not in EXCEPTIONS]


@pytest.fixture(autouse=True)
def every_op_is_cut():
    """Moving is free, so that all is cut that a rule allows; memory that nobody owns holds NaN."""
    before = spmdx._C.checks()
    spmdx._C.set_checks(poison=True)
    with least_work():
        yield
    spmdx._C.set_checks(**before)


def passes(judge, entry, at, short="f32"):
    setting = SETTINGS[at % len(SETTINGS)]
    if short != "f32":
        setting = dataclasses.replace(setting, most_samples=3, most_placements=3)
    verdict = judge.judge(entry, setting, dtype=DTYPES[short])
    assert not verdict.trouble, "\n".join(verdict.trouble[:5])
    assert verdict.runs or verdict.note or short != "f32"  # PyTorch may have no kernel for it


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(OPS)), ids=[op_judge.name_of(op) for op in OPS])
def test_op(at):
    passes(op_judge, OPS[at], at)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("short", "at"), OF_DTYPES)
def test_op_of_another_dtype(short, at):
    op = op_judge.entries(DTYPES[short])[at]
    if op_judge.name_of(op) not in EXCEPTIONS:
        passes(op_judge, op, at, short)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(NORMS)), ids=map(module_judge.name_of, NORMS))
def test_norm_in_bf16(at):
    passes(module_judge, NORMS[at], at, "bf16")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(MODULES)), ids=map(module_judge.name_of, MODULES))
def test_module(at):
    passes(module_judge, MODULES[at], at)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(OPTIMIZERS)), ids=map(optim_judge.name_of, OPTIMIZERS))
def test_optimizer(at):
    passes(optim_judge, OPTIMIZERS[at], at)
