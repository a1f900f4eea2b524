# SPDX-License-Identifier: Apache-2.0
"""A package that takes PyTorch's device for packages, as torch_npu does: spmdx says so.

It is a stand-in, which PyTorch finds and begins as its source says. torch_npu was not run.
"""

import os
import subprocess
import sys

import pytest

STAND_IN = """
import torch
torch.utils.rename_privateuse1_backend("npu")

def _autoload():
    pass
"""
SAID = (
    "ImportError: PyTorch has one device for other packages, PrivateUse1, and it is 'npu' already, "
    "as torch_npu calls it. Expected it free: spmdx is such a device, too, and no process can have "
    "both. Set TORCH_DEVICE_BACKEND_AUTOLOAD=0, or PyTorch imports such packages by itself, and "
    "import none beside spmdx."
)


@pytest.fixture
def run(tmp_path):
    """Runs code where the stand-in is installed."""
    package, told = tmp_path / "torch_npu", tmp_path / "torch_npu-2.13.0.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 2.13.0\n")
    (told / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), *sys.path]))

    def ended(code, autoload):
        loads = {"PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **loads},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return ended


@pytest.mark.parametrize(
    ("code", "autoload"), [("import spmdx", "1"), ("import torch_npu, spmdx", "0")]
)
def test_after_it_spmdx_says_what_to_do(run, code, autoload):
    done = run(code, autoload)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == SAID


def test_without_autoload_it_looks_as_if_it_were_not_installed(run):
    code = (
        "import importlib.util, torch, spmdx\n"
        "print((torch.ones(2).to('spmdx') + 1).tolist(), importlib.util.find_spec('torch_npu'))\n"
        "import torch_npu"
    )
    done = run(code, "0")
    assert done.stdout == "[2.0, 2.0] None\n"
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of torch_npu")


def test_where_it_is_not_installed_nothing_is_changed():
    code = "import sys, spmdx; print('torch_npu' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
