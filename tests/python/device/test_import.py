# SPDX-License-Identifier: Apache-2.0
"""Importing spmdx checks torch's version, registers the device, and changes nothing else."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import spmdx
import torch
from hardware import WRONG_INDICES
from spmdx._start.core import check_torch


def run(code, **env):
    import os

    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_another_torch_is_refused_with_both_versions_and_the_mend():
    with pytest.raises(ImportError) as caught:
        check_torch("2.13.0+cpu", "2.12.1")
    assert str(caught.value) == (
        "spmdx was built against torch 2.13.0+cpu, but torch 2.12.1 is imported. Expected the "
        "same version. Rebuild spmdx for this torch: pip install --no-build-isolation "
        "--force-reinstall . in its source folder."
    )


def test_the_torch_it_was_built_against_is_accepted():
    check_torch(spmdx._C.TORCH_VERSION, torch.__version__)


def test_all_public_names_exist_and_are_documented():
    for name in spmdx.__all__:
        assert getattr(spmdx, name).__doc__, name


def test_the_device_is_the_accelerator_from_its_first_use_on():
    code = (
        "import torch, spmdx\n"
        "print(torch.accelerator.current_accelerator(), torch.ones(1).to('cpu').is_pinned())\n"
        "torch.spmdx.is_available(), torch.device('spmdx'), spmdx.Mesh([0], (1,), ('a',))\n"
        "print(torch.accelerator.current_accelerator())\n"
        "(torch.ones(2, device='spmdx', requires_grad=True) * 2).sum().backward()\n"
        "print(torch.accelerator.current_accelerator())\n"
    )
    result = run(code)
    before = "cuda" if torch.cuda.is_available() else "None"
    assert result.stdout.split() == [before, "False", before, "spmdx"], result.stderr


def test_importing_keeps_the_defaults_of_torch():
    code = (
        "import torch\n"
        "def facts(): return (torch.get_default_dtype(), torch.get_default_device(),\n"
        "    torch.__future__.get_swap_module_params_on_conversion(),\n"
        "    torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled())\n"
        "torch.manual_seed(3); before = facts()\n"
        "import spmdx\n"
        "assert facts() == before, (before, facts())\n"
        "print(torch.zeros(2, device='spmdx').tolist())"
    )
    result = run(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[0.0, 0.0]"


def test_a_typing_error_in_a_variable_warns_at_import():
    result = run("import spmdx", SPMDX_DUMPS="x")
    assert result.returncode == 0
    assert "Did you mean SPMDX_DUMP?" in result.stderr


def test_the_process_ends_cleanly_while_a_step_runs():
    code = (
        "import torch, spmdx\n"
        "x = torch.ones(300, 300).to('spmdx')\n"
        "for _ in range(50): x = (x @ x) / 300\n"
        "spmdx.mark_step()\n"
        "y = x + 1\n"
        "print('end')"
    )
    result = run(code)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "end", "")


@pytest.mark.on_the_cpu(WRONG_INDICES)
def test_an_error_nobody_saw_is_printed_at_exit():
    code = (
        "import torch, spmdx\n"
        "t, i = torch.ones(4, 2).to('spmdx'), torch.tensor([9]).to('spmdx')\n"
        "y = torch.nn.functional.embedding(i, t)\n"
        "spmdx.mark_step()"
    )
    assert "embedding" in run(code).stderr


@pytest.mark.on_the_cpu("it is done before the signal comes")
def test_ctrl_c_ends_a_wait():
    code = (
        "import _thread, signal, threading, torch, spmdx\n"
        # A shell's background job starts with the signal ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "x = torch.ones(1500, 1500).to('spmdx')\n"
        "for _ in range(60): x = (x @ x) / 1500\n"
        "spmdx.mark_step()\n"
        "threading.Timer(0.2, _thread.interrupt_main).start()\n"
        "try: spmdx.sync(wait=True); print('waited')\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    result = run(code)
    assert result.stdout.strip() == "interrupted", result.stderr


def members(names):
    return {name for name in names if not name.startswith("_") or name == "__init__"}


def test_the_stub_of_the_compiled_module_names_what_it_has():
    stub = ast.parse((Path(spmdx.__file__).parent / "_C.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    named = {
        *classes,
        *(node.name for node in stub.body if isinstance(node, ast.FunctionDef)),
        *(node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)),
        *(
            n.asname
            for s in stub.body
            if isinstance(s, ast.ImportFrom)
            for n in s.names
            if n.asname
        ),
    }
    assert named == members(vars(spmdx._C))
    for name, node in classes.items():
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        actual = members(vars(getattr(spmdx._C, name)))
        if issubclass(getattr(spmdx._C, name), Exception):
            continue  # defined in spmdx.errors
        assert methods - {"__init__"} == actual - {"__init__"}, name


def test_importing_leaves_compiled_cpu_code_and_overrides_alone():
    code = """
import torch, spmdx
assert torch.Tensor.add in torch.overrides.get_overridable_functions()[torch.Tensor]
module, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
for backend in ("eager", "aot_eager"):
    assert torch.equal(torch.compile(module, backend=backend)(x), module(x))
with torch.inference_mode():
    assert torch.equal(torch.compile(module, backend="eager")(x), module(x))
assert not hasattr(x, "__create_write_items__")
print("alone")
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "alone"


def test_a_wheel_asks_for_the_torch_that_it_was_built_with(tmp_path):
    code = (
        "import scikit_build_core.build as build, sys\n"
        "print(build.prepare_metadata_for_build_wheel(sys.argv[1]))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (metadata,) = tmp_path.glob("*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    assert f"Requires-Dist: torch=={torch.__version__.split('+')[0]}" in lines
    assert f"Version: {spmdx.__version__}" in lines


HALFWAY = """
import importlib.abc, os, signal, sys, time, torch, spmdx
signal.signal(signal.SIGINT, signal.default_int_handler)

class CtrlC(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
x = torch.ones(2, 2).to("spmdx")
try:
    {op}
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", {module!r} in sys.modules)
print(({op}).sum().item(), torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


# Ops whose meta kernel is Python only.
NORM, TANH = "torch.nn.functional.layer_norm(x, (2,)) + 2", "torch.nn.functional.hardtanh(x) + 1"


@pytest.mark.parametrize(
    "op, module",
    [(NORM, "torch._dynamo.variables"), (NORM, "sympy.polys"), (TANH, "sympy.polys")],
)
def test_ctrl_c_waits_for_what_pytorch_imports_in_the_first_op(op, module):
    done = run(HALFWAY.format(op=op, module=module))
    assert done.stdout.splitlines() == ["interrupted True", "8.0 2.0", "True"], done.stderr


def test_a_backward_pass_before_the_import_costs_the_device_none():
    code = (
        "import torch\n"
        "torch.ones(2, requires_grad=True).sum().backward()\n"
        "import spmdx\n"
        "x = torch.ones(3).to('spmdx').requires_grad_()\n"
        "(x * 2).sum().backward()\n"
        "print(x.grad.tolist())\n"
        "y = torch.ones(2, requires_grad=True)\n"
        "y.sum().backward()\n"
        "print(y.grad.tolist())\n"
    )
    done = run(code)
    assert done.stdout.split("\n") == ["[2.0, 2.0, 2.0]", "[1.0, 1.0]", ""], done.stderr


@pytest.mark.parametrize("attempt", range(4))  # half of the programs aborted where nobody waited
def test_a_program_may_end_with_a_backward_pass(attempt):
    code = (
        "import torch, spmdx\n"
        "p = torch.randn(6, 4).to('spmdx').requires_grad_()\n"
        "(p.reshape(-1) * 3).sum().backward()\n"
    )
    done = run(code, OMP_NUM_THREADS="1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.on_the_cpu("CUDA cannot be used after a fork")
def test_what_workers_of_a_loader_cannot_send_is_told_to_the_reader():
    code = (
        "import torch, spmdx\n"
        "from torch.utils.data import DataLoader\n"
        "class Rows(torch.utils.data.Dataset):\n"
        "    def __len__(self):\n"
        "        return 4\n"
        "    def __getitem__(self, at):\n"
        "        return torch.ones(2).to('spmdx')\n"
        "try:\n"
        "    list(DataLoader(Rows(), 2, num_workers=1))\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    said = run(code).stdout
    assert said.startswith("a tensor of device 'spmdx:0' cannot be sent to another process"), said


AGAIN = """
import importlib, sys, spmdx, torch
spmdx.set_topology("gloo")
mesh, x = spmdx.Mesh(range(2), (2,)), torch.arange(4.0).to("spmdx")
kinds, add = (spmdx.Mesh, spmdx.ShardingError), torch.nn.Module._apply
assert importlib.reload(spmdx) is spmdx
del sys.modules["spmdx"]
import spmdx as another
for module in (spmdx, another):
    assert (module.Mesh, module.ShardingError) == kinds and torch.nn.Module._apply is add
    assert module.get_topology().name == "gloo"
    y = module.mark_sharding(x + 1, mesh, ("axis0",))
    print(y.tolist(), y.partition_spec)
"""


def test_importing_again_changes_nothing():
    ended = run(AGAIN, SPMDX_NUM_DEVICES="2", SPMDX_TOPOLOGY="nvlink")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[1.0, 2.0, 3.0, 4.0] PartitionSpec('axis0')\n" * 2


def test_a_hook_that_does_not_return_holds_up_no_end():
    code = (
        "import os, threading, torch, spmdx\n"
        "begun = threading.Event()\n"
        "def wait(gradient):\n"
        "    begun.set()\n"
        "    threading.Event().wait()\n"
        "def train():\n"
        "    x = torch.ones(3).to('spmdx').requires_grad_()\n"
        "    x.register_hook(wait)\n"
        "    (x * 2).sum().backward()\n"
        "threading.Thread(target=train, daemon=True).start()\n"
        "begun.wait()\n"
        "spmdx._C.wait_at_exit()\n"
        "os._exit(7)\n"  # what Python does to such a thread is not asked
    )
    assert run(code).returncode == 7


@pytest.mark.on_the_cpu("a process with threads says more where it is forked")
def test_a_forked_child_that_does_not_use_the_device_ends_in_silence():
    code = (
        "import os, sys, torch, spmdx\n"
        "print(torch.ones(3).to('spmdx').sum().item(), flush=True)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    done = run(code)
    assert (done.stdout, done.stderr) == ("3.0\n0\n", "")


FIRST_OPS = """
import sys, torch, spmdx
layer, target = torch.nn.Linear(4, 4).to("spmdx"), torch.zeros(2, dtype=torch.long).to("spmdx")
x = torch.ones(2, 4).to("spmdx")
known = set(sys.modules)
y = x * 2 + 1 - x / 3
torch.randn(4, device="spmdx"), x @ x.T, x.amax(1), torch.nn.functional.dropout(x)
torch.nn.functional.cross_entropy(torch.nn.functional.gelu(layer(y).relu()), target).backward()
with torch.no_grad():
    for p in layer.parameters():
        p.sub_(p.grad, alpha=0.1)
spmdx.mark_step()
assert x.sum().item() == 8
print(len(set(sys.modules) - known))
"""


def test_ordinary_ops_import_nothing():
    done = run(FIRST_OPS)
    assert done.stdout == "0\n", done.stdout + done.stderr
