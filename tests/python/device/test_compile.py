# SPDX-License-Identifier: Apache-2.0
"""torch.compile of models on the device gives what eager PyTorch gives on the CPU."""

import functools
import subprocess
import sys
import warnings

import compiled_models
import pytest
import spmdx
import torch
import torch._dynamo
from compiled_models import CASES, cross_entropy, data, make, outputs, train
from models import Plan, assert_equal, assert_same
from torch import nn

FULLY = {n: Plan((n,), ("data",), fully_sharded=True) for n in (1, 2, 3, 4, 8)}
MIXED = Plan((4, 2), ("data", "model"))
BACKENDS = ("spmdx", "eager", "aot_eager")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@functools.cache
def reference(name, sizes):
    """Plain eager PyTorch: on the CPU, or where random numbers are drawn, on the device."""
    return train(name, sizes, device="spmdx" if CASES[name].random else "cpu")


def check(name, sizes, plan, backend):
    before = spmdx.debug.counters()["fallback_ops"]
    # PyTorch unrolls an LSTM where it compiles one; it is no small graph for aot_eager.
    with torch._dynamo.config.patch(allow_rnn=backend != "aot_eager"):
        trace = train(name, sizes, plan, backend)
    assert_same(trace, reference(name, sizes))
    assert spmdx.debug.counters()["fallback_ops"] == before, "an op has no rule"
    assert graphs() > 0 or (name, backend) == ("lstm", "aot_eager")


@pytest.mark.parametrize("plan", [None, FULLY[3], MIXED], ids=["bare", "fully on 3", "4x2"])
@pytest.mark.parametrize("name", CASES)
def test_training_with_the_backend_of_the_device_equals_eager(name, plan):
    check(name, (7, 7), plan, "spmdx")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CASES)
def test_training_with_other_backends_equals_eager(name, backend):
    check(name, (7, 7), FULLY[8] if backend == "aot_eager" else MIXED, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_every_count_of_devices_equals_eager(devices, backend):
    check("mlp", (8, 8, 5), FULLY[devices], backend)  # the last batch makes shapes symbols


@pytest.mark.parametrize("name", CASES)
def test_evaluation_equals_eager(name):
    want = outputs(name, (7,), torch.inference_mode, device="cpu")
    got = outputs(name, (7,), torch.inference_mode, MIXED, "spmdx")
    for found, expected in zip(got, want, strict=True):
        assert_equal(found, expected, name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("name", ["mlp", "conv", "vae"])
def test_evaluation_under_a_mode_equals_eager(name, mode, backend):
    want = outputs(name, (7,), mode, device="cpu")
    got = outputs(name, (7,), mode, FULLY[8], backend)
    for found, expected in zip(got, want, strict=True):
        assert_equal(found, expected, name)


@pytest.mark.parametrize("name", ["mlp", "conv", "experts", "gpt"])
def test_a_compiled_model_is_recorded_as_the_eager_one(name):
    train(name, (8, 8), MIXED)
    planned = spmdx.debug.counters()["plans_compiled"]
    train(name, (8, 8), MIXED, "spmdx")
    assert graphs() > 0 and spmdx.debug.counters()["plans_compiled"] == planned


MESH = spmdx.Mesh(range(4), (4,), ("data",))
ROWS = ("data", None)


def on_device(function):
    """``function`` on the device, nothing elsewhere: what a program marks, in the eager one too."""
    return lambda t: function(t) if t.device.type == "spmdx" else t


mark = on_device(lambda t: spmdx.mark_sharding(t, MESH, ROWS))
mark_both = on_device(lambda t: spmdx.mark_sharding_with_gradients(t, MESH, ROWS))
mark_as_copy = on_device(lambda t: spmdx.shard_as(mark(t.clone()), t)[1])
step = on_device(lambda t: spmdx.mark_step() or t)


def marks_in_place(x):
    hidden = x * 2
    mark(hidden)
    return hidden.tanh() * x


def marks_what_it_gets(x):
    mark(x)
    return (x * x).tanh()


def has_modes(x):
    with torch.no_grad():
        with torch.enable_grad():
            inner = x.exp() * x
        outer = x.exp().sum(0)
    with torch.inference_mode():
        scale = x.shape[0] * 2
    return inner * outer + scale * x


def writes(x):
    y = x.clone()
    y[1:3] = 0
    y.add_(1)
    y[:, ::2].mul_(3)
    return y * x


PROGRAMS = {
    "marks a value": lambda x: (mark(x * 2) + 1).relu(),
    "marks in place": marks_in_place,
    "marks what it gets": marks_what_it_gets,
    "marks gradients": lambda x: (mark_both(x.exp()) @ x.T).tanh(),
    "shards as another": lambda x: mark_as_copy(x.exp()) * 2,
    "ends a step": lambda x: step(x * 2).exp(),
    "has modes": has_modes,
    "writes": writes,
    "asks values": lambda x: x * 2 if x.sum() > 0 else x[x > 0] * 3,
    "goes to the host": lambda x: (x * 2).cpu().sin().to(x.device) + 1,
}


def gradient_and_value(program, x):
    x = x.requires_grad_()
    y = program(x)
    y.square().sum().backward()
    return y.detach().cpu(), x.grad.cpu()


@pytest.mark.parametrize("rows", [8, 7])
@pytest.mark.parametrize("backend", ["spmdx", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_equals_eager(name, backend, rows):
    x = compiled_models.numbers(rows, 6)
    want = gradient_and_value(PROGRAMS[name], x.clone())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Dynamo does not know how to trace")
        got = gradient_and_value(
            torch.compile(PROGRAMS[name], backend=backend), x.clone().to("spmdx")
        )
    for found, expected in zip(got, want, strict=True):
        assert_equal(found, expected, name)


def test_what_is_marked_inside_is_cut():
    x = torch.ones(8, 6).to("spmdx")
    spmdx.mark_step()
    y = torch.compile(marks_in_place, backend="spmdx")(x)
    assert spmdx.get_sharding(y).spec == ("data", None) and graphs() == 2


def test_a_parameter_marked_inside_is_annotated_from_then_on():
    layer = make("mlp")[0].to("spmdx")

    def run(x):
        mark(layer.weight)
        return layer(x)

    x = torch.ones(8, 10, dtype=torch.float64).to("spmdx")
    want = layer(x).cpu()
    for _ in range(2):
        assert_equal(torch.compile(run, backend="aot_eager")(x).detach().cpu(), want, "layer")
    assert layer.weight.partition_spec == ROWS and isinstance(layer.weight, nn.Parameter)


def test_manual_regions_are_called_between_graphs():
    double = spmdx.shard_map(lambda rows: rows + rows, MESH, (ROWS,), ROWS)
    x = torch.arange(48.0).view(8, 6).to("spmdx")
    got = torch.compile(lambda x: double(x + 1) + 1, backend="aot_eager")(x)
    assert torch.equal(got.cpu(), x.cpu() * 2 + 3) and graphs() == 2


@pytest.mark.parametrize("backend", ["spmdx", "aot_eager"])
def test_a_whole_step_with_its_optimizer_compiles(backend):
    def trained(device, compiled):
        model = make("mlp").to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        step = torch.compile(step, backend=backend) if compiled else step
        for (x,), y in data("mlp", (8, 8)):
            step(x.to(device), y.to(device))
        return [p.detach().cpu() for p in model.parameters()]

    for found, expected in zip(trained("spmdx", True), trained("cpu", False), strict=True):
        assert_equal(found, expected, "parameter")


def test_a_whole_graph_cannot_hold_an_annotation():
    x = torch.ones(8, 6).to("spmdx")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="spmdx.mark_sharding acts when it is"):
        torch.compile(marks_in_place, backend="spmdx", fullgraph=True)(x)


def test_options_are_refused():
    x = torch.ones(8).to("spmdx")
    with pytest.raises(Exception, match='backend "spmdx" was given mode. Expected neither a mode'):
        torch.compile(torch.relu, backend="spmdx", mode="max-autotune")(x)


def test_inductor_is_refused_with_what_to_use_instead():
    for program in (lambda x: x * 2, lambda x: torch.arange(4, device="spmdx") + 1):
        with pytest.raises(RuntimeError, match=r'Write torch.compile\(..., backend="spmdx"\)'):
            torch.compile(program)(torch.ones(4).to("spmdx"))


def run_alone(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_importing_imports_no_compiler():
    run_alone("""
import sys, torch, spmdx
spmdx.mark_sharding(torch.ones(2).to("spmdx"), spmdx.get_1d_mesh("data"), ("data",)).cpu()
assert not [n for n in sys.modules if n.startswith(("torch._dynamo", "torch._inductor"))]
assert "spmdx" in torch.compiler.list_backends()
""")


def test_a_compiler_that_was_imported_before_knows_the_device():
    run_alone("""
import torch, torch._dynamo, torch._functorch.aot_autograd
import spmdx
x = spmdx.mark_sharding(torch.ones(2).to("spmdx"), spmdx.get_1d_mesh("data"), ("data",))
for backend in ("spmdx", "aot_eager"):
    assert torch.compile(lambda x: x + 1, backend=backend)(x).tolist() == [2, 2]
""")
