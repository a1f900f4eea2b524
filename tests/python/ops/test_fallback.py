# SPDX-License-Identifier: Apache-2.0
"""An op without a rule runs, is right, and is heard of: counters, one warning, or an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import spmdx
import torch
from composites import mesh_of

FILE = Path(__file__).name
PROGRAM = """
import spmdx, torch
spmdx.runtime.set_device_count(4)
x = torch.arange(32.0).reshape(8, 2, 2) / 50
y = spmdx.mark_sharding(x.to("spmdx"), spmdx.get_1d_mesh("x"), ("x", None, None))
for _ in range(2):
    z = torch.linalg.matrix_exp(y * 1.5) + torch.linalg.matrix_exp(y)
    y = y + 1
    assert torch.allclose(z.cpu(), torch.linalg.matrix_exp(x * 1.5) + torch.linalg.matrix_exp(x))
    x = x + 1
"""


@pytest.fixture
def train(tmp_path):
    """Runs a program in a process of its own."""

    def run(program=PROGRAM, **environment):
        path = tmp_path / "train.py"
        path.write_text(program)
        return subprocess.run(
            [sys.executable, path],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def errors():
    spmdx._C.set_fallbacks_are_errors(True)
    yield
    spmdx._C.set_fallbacks_are_errors(False)


def cut(*shape):
    spec = ("x", *[None] * (len(shape) - 1))
    return spmdx.mark_sharding(torch.rand(shape).to("spmdx"), mesh_of(4), spec)


def test_a_process_is_warned_once(train):
    done = train()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("UserWarning") == 1
    assert (
        "aten.linalg_matrix_exp has no sharding rule: 96 bytes a device are gathered" in done.stderr
    )


def test_the_environment_makes_it_an_error(train):
    done = train(SPMDX_FALLBACK="error")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "spmdx.errors.ShardingError: train.py:7: aten.linalg_matrix_exp has no sharding rule: "
        "96 bytes a device are gathered, and it runs whole on every device. Expected an op with a "
        "rule. Use one, or add a rule as docs/add_an_op.md shows, or unset SPMDX_FALLBACK."
    )


def test_a_warning_made_an_error_loses_nothing(train):
    done = train(PYTHONWARNINGS="error::UserWarning")
    assert done.returncode == 1
    assert done.stderr.count("\nUserWarning: train.py:7: aten.linalg_matrix_exp") == 1
    guarded = PROGRAM.replace(
        "    assert", "    try:\n        z.cpu()\n    except UserWarning:\n        pass\n    assert"
    )
    done = train(guarded, PYTHONWARNINGS="error::UserWarning")
    assert done.returncode == 0, done.stderr


def test_an_error_loses_nothing(errors):
    x = cut(8, 2, 2)
    y = torch.linalg.matrix_exp(x)
    with pytest.raises(spmdx.ShardingError, match=rf"^{FILE}:\d+: aten.linalg_matrix_exp has no"):
        y.cpu()
    spmdx._C.set_fallbacks_are_errors(False)
    assert torch.allclose(y.cpu(), torch.linalg.matrix_exp(x.cpu()))


def test_what_gathers_nothing_is_no_error(errors):
    whole = torch.rand(8, 2, 2)
    x = whole.to("spmdx")
    cut(8, 4).sum().item()
    assert torch.allclose(torch.linalg.matrix_exp(x).cpu(), torch.linalg.matrix_exp(whole))


def test_ops_are_counted_by_name():
    x = cut(8, 2, 2)
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    torch.linalg.matrix_exp(x).cpu()
    assert spmdx.debug.fallbacks() == {"aten.linalg_matrix_exp": 1}
    assert spmdx.debug.counters()["fallback_ops"] == 1
    spmdx.debug.reset_counters()
    assert spmdx.debug.fallbacks() == {}


def test_a_word_that_is_none_is_told(train):
    done = train(SPMDX_FALLBACK="raise")
    assert (
        "ValueError: SPMDX_FALLBACK is 'raise', which is no way to treat a fallback. Expected "
        "'error', or nothing. Unset SPMDX_FALLBACK, or write SPMDX_FALLBACK=error." in done.stderr
    )
