# SPDX-License-Identifier: Apache-2.0
"""A fixed third of torch's ops and modules, and its optimizers; `make conformance` runs all.

Of other dtypes than f32 it is a smaller share, and few samples.
"""

import dataclasses

import module_oracle
import op_oracle
import optim_oracle
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
OPS = [op for op in op_oracle.entries() if op_oracle.name_of(op) not in EXCEPTIONS][::3]
MODULES = module_oracle.entries()[::3]
# One of so many entries. What these are differs from dtype to dtype, for op_db's tables do.
SHARE = {"bf16": 9, "f16": 18, "i64": 18, "bool": 18, "c64": 18}
OF_DTYPES = [
    (short, at)
    for short, share in SHARE.items()
    for at in range(0, len(op_oracle.entries(DTYPES[short])), share)
]
NORMS = [m for m in module_oracle.entries() if "Norm" in module_oracle.name_of(m)]
OPTIMIZERS = [o for o in optim_oracle.entries() if optim_oracle.name_of(o) not in EXCEPTIONS]


@pytest.fixture(autouse=True)
def every_op_is_cut():
    """Moving is free, so that all is cut that a rule allows; memory that nobody owns holds NaN."""
    before = spmdx._C.checks()
    spmdx._C.set_checks(poison=True)
    with least_work():
        yield
    spmdx._C.set_checks(**before)


def passes(oracle, entry, at, short="f32"):
    setting = SETTINGS[at % len(SETTINGS)]
    if short != "f32":
        setting = dataclasses.replace(setting, most_samples=3, most_placements=3)
    verdict = oracle.judge(entry, setting, dtype=DTYPES[short])
    assert not verdict.trouble, "\n".join(verdict.trouble[:5])
    assert verdict.runs or verdict.note or short != "f32"  # PyTorch may have no kernel for it


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(OPS)), ids=[op_oracle.name_of(op) for op in OPS])
def test_op(at):
    passes(op_oracle, OPS[at], at)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("short", "at"), OF_DTYPES)
def test_op_of_another_dtype(short, at):
    op = op_oracle.entries(DTYPES[short])[at]
    if op_oracle.name_of(op) not in EXCEPTIONS:
        passes(op_oracle, op, at, short)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(NORMS)), ids=map(module_oracle.name_of, NORMS))
def test_norm_in_bf16(at):
    passes(module_oracle, NORMS[at], at, "bf16")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(MODULES)), ids=map(module_oracle.name_of, MODULES))
def test_module(at):
    passes(module_oracle, MODULES[at], at)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(OPTIMIZERS)), ids=map(optim_oracle.name_of, OPTIMIZERS))
def test_optimizer(at):
    passes(optim_oracle, OPTIMIZERS[at], at)
