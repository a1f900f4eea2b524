# SPDX-License-Identifier: Apache-2.0
"""What torch.compile and other tracers make of annotated tensors: what eager PyTorch makes."""

import copy
import io
import subprocess
import sys
import warnings

import pytest
import spmdx
import torch
import torch._dynamo
import torch.nn.functional as F
from models import assert_equal
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

BACKENDS = ("spmdx", "eager", "aot_eager")
DEVICES = (2, 3, 4)
KINDS = ("tensor", "leaf", "parameter")


def numbers(*shape):
    """Of both signs, and none twice."""
    return torch.linspace(-1.7, 2.3, torch.Size(shape).numel(), dtype=torch.float64).view(shape)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.warn_once_cache.clear()
    yield
    torch._dynamo.reset()


def marked(plain, devices=2):
    """The same on the device, its rows cut over a mesh."""
    there = plain.detach().to("spmdx").requires_grad_(plain.requires_grad)
    there = nn.Parameter(there) if isinstance(plain, nn.Parameter) else there
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    return spmdx.mark_sharding(there, mesh, ("data",) + (None,) * (plain.dim() - 1))


def of_kind(kind):
    x = numbers(7, 3)
    if kind == "parameter":
        return nn.Parameter(x)
    return x.requires_grad_(kind == "leaf")


def value_and_gradient(program, x):
    """Of the sum of squares of what a program gives, one tensor or several."""
    found = program(x)
    found = torch.cat([part.flatten() for part in found]) if isinstance(found, list) else found
    if x.requires_grad:
        found.square().sum().backward()
    return found.detach().cpu(), None if x.grad is None else x.grad.cpu()


PROGRAMS = {
    "rows by a mask": lambda x: x[x[:, 0] > 0],
    "elements by a mask": lambda x: x[x > 0] * 2,
    "elements of a product": lambda x: (x * 2)[x > 0],
    "masked_select": lambda x: torch.masked_select(x, x.abs() <= 1),
    "rows by torch.where": lambda x: x[torch.where(x[:, 0] != 0)],
    "several comparisons": lambda x: x[(x > -1) & ~(x == 0) & (1 > x)],
    "rows": lambda x: [*x][1:],
    "rows, unpacked": lambda x: [row * 2 for row in x] + list(x),
}


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_choices_from_annotated_tensors_equal_eager(name, backend, devices):
    for kind in KINDS:
        torch._dynamo.reset()
        want = value_and_gradient(PROGRAMS[name], of_kind(kind))
        program = torch.compile(PROGRAMS[name], backend=backend)
        got = value_and_gradient(program, marked(of_kind(kind), devices))
        for found, expected in zip(got, want, strict=True):
            assert expected is found is None or assert_equal(found, expected, kind) is None


def masked_loss(y, target):
    known = target >= 0
    return F.cross_entropy(y[known], target[known])


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loss_over_known_targets_equals_eager_whichever_is_annotated(backend, devices):
    y, target = numbers(7, 5), torch.tensor([0, -1, 2, 3, -1, 4, 1])
    wanted = y.clone().requires_grad_()
    loss = masked_loss(wanted, target)
    loss.backward()
    for which in ("y", "target", "both"):
        torch._dynamo.reset()
        there = y.to("spmdx") if which == "target" else marked(y, devices)
        classes = target.to("spmdx") if which == "y" else marked(target, devices)
        there.requires_grad_()
        found = torch.compile(masked_loss, backend=backend)(there, classes)
        found.backward()
        assert_equal(found.detach().cpu(), loss.detach(), which)
        assert_equal(there.grad.cpu(), wanted.grad, which)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_plain_tensors(kind, backend):
    for program in (
        lambda x: list(x),
        lambda x: [*x],
        lambda x: [row for row in x],
        lambda x: list(zip(x, x, strict=True)),
    ):
        rows = torch.compile(program, backend=backend)(marked(of_kind(kind)))
        rows = [row for held in rows for row in (held if isinstance(held, tuple) else (held,))]
        assert {type(row) for row in rows} == {torch.Tensor}
        assert all(spmdx.get_annotation(row) is None for row in rows)


class KeepsARow(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        row, *_ = self.weight
        self.last = row
        return x * self.last


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_keeps_a_row_of_an_annotated_parameter(backend):
    x, weight = numbers(3), of_kind("parameter")
    module = KeepsARow(marked(weight))
    got = torch.compile(module, backend=backend)(x.to("spmdx"))
    assert_equal(got.detach().cpu(), (x * weight[0]).detach(), "product")
    assert type(module.last) is torch.Tensor and set(dict(module.named_parameters())) == {"weight"}


def classes_and_pieces(x, factor):
    with torch.no_grad():
        x.mul_(factor)
    known = isinstance(x, spmdx.ShardedTensor), isinstance(x, nn.Parameter), type(x)
    return x, known, x.local_shards[-1].data + 0


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_that_is_written_to_keeps_its_class_and_shows_what_was_written(
    kind, backend, devices
):
    x = marked(of_kind(kind), devices)
    program = torch.compile(classes_and_pieces, backend=backend)
    same, known, piece = program(x, torch.full((7, 3), 2.0, dtype=torch.float64).to("spmdx"))
    kept = spmdx.tensor.ShardedParameter if kind == "parameter" else spmdx.ShardedTensor
    assert same is x and known == (True, kind == "parameter", kept)
    assert x.partition_spec == ("data", None)
    want = of_kind(kind).detach() * 2
    assert_equal(x.detach().cpu(), want, "the tensor")
    assert_equal(piece.cpu(), want[7 - len(piece) :], "its last piece")


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_and_classes_of_annotated_tensors_are_read_in_one_graph(kind):
    x = marked(of_kind(kind))
    x.grad = None if kind == "tensor" else torch.ones(7, 3, dtype=torch.float64).to("spmdx")

    def program(x):
        assert issubclass(x.__class__, spmdx.ShardedTensor)
        return x * 2 if x.grad is None else x.detach() - x.grad

    got = torch.compile(program, backend="spmdx", fullgraph=True)(x)
    plain = of_kind(kind).detach()
    assert_equal(got.detach().cpu(), plain * 2 if kind == "tensor" else plain - 1, "result")


def test_a_graph_is_made_again_when_an_annotation_comes_and_not_when_it_moves():
    x, mesh = numbers(6).to("spmdx"), spmdx.Mesh(range(2), (2,), ("data",))
    program = torch.compile(lambda x: (isinstance(x, spmdx.ShardedTensor), x * 2), backend="spmdx")
    found = []
    for spec in (None, ("data",), (None,), None, ("data",)):
        spmdx.clear_sharding(x) if spec is None else spmdx.mark_sharding(x, mesh, spec)
        is_annotated, doubled = program(x)
        assert_equal(doubled.cpu(), x.detach().cpu() * 2, "result")
        found.append((is_annotated, torch._dynamo.utils.counters["stats"]["unique_graphs"]))
    assert found == [(False, 1), (True, 2), (True, 2), (False, 2), (True, 2)]


def through_a_file(x):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


QUIET = {
    "a parameter": lambda x: nn.Parameter(x.double()),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "save and load": through_a_file,
    "half": lambda x: nn.ParameterList([x]).float()[0],
    "a text": lambda x: (repr(x), x)[1],
}


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("name", QUIET)
def test_what_ends_a_graph_for_the_device_warns_of_nothing(name, is_marked):
    x = marked(of_kind("parameter"))
    x = x if is_marked else spmdx.clear_sharding(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = torch.compile(QUIET[name], backend="eager")(x)
    want = QUIET[name](x)
    assert type(got) is type(want) and got.dtype == want.dtype
    assert spmdx.get_annotation(got) == spmdx.get_annotation(want)
    assert torch.equal(got.cpu(), want.cpu())


@pytest.mark.parametrize("devices", DEVICES)
def test_an_annotated_function_is_linearized(devices):
    plain, factor = numbers(7, 3), numbers(7, 3) + 2

    def linearized(x, factor, direction):
        value, along = torch.func.linearize(lambda x: (x * factor).sin(), x)
        return value.cpu(), along(direction).cpu()

    want = linearized(plain, factor, plain)
    got = linearized(marked(plain, devices), marked(factor, devices), plain.to("spmdx"))
    for found, expected in zip(got, want, strict=True):
        assert_equal(found, expected, "value, or derivative")


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("pre_dispatch", [False, True])
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_traces_captured_annotated_tensors_parameters_and_buffers(
    mode, pre_dispatch, devices
):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double().eval()
    x, captured = numbers(7, 3), numbers(7, 4)
    want = (model(x) * captured).detach()
    ours, there = model.to("spmdx"), marked(captured, devices)
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    for tensor in (ours[0].weight, ours[1].running_mean):
        spmdx.mark_sharding(tensor, mesh, ("data",) + (None,) * (tensor.dim() - 1))
    traced = make_fx(
        lambda x: ours(x) * there,
        tracing_mode=mode,
        pre_dispatch=pre_dispatch,
        _allow_non_fake_inputs=mode != "real",
    )(marked(x, devices))
    assert_equal(traced(marked(x, devices)).detach().cpu(), want, "result")


def test_a_compiler_that_was_imported_before_knows_annotated_tensors():
    code = """
import torch, torch._dynamo, torch._functorch.aot_autograd
import spmdx
from torch.utils.checkpoint import checkpoint
x = spmdx.mark_sharding(torch.arange(4.).to("spmdx"), spmdx.get_1d_mesh("data"), ("data",))
for backend in ("spmdx", "aot_eager"):
    assert torch.compile(lambda x: x[x > 1], backend=backend)(x).tolist() == [2, 3]
    assert type(torch.compile(lambda x: [*x], backend=backend)(x)[0]) is torch.Tensor
    y = x.detach().requires_grad_()
    noisy = lambda y: checkpoint(lambda y: torch.rand_like(y) * y.exp(), y, use_reentrant=False)
    found = torch.compile(noisy, backend=backend)(y)
    found.sum().backward()
    assert torch.equal(found, y.grad)
assert torch.equal(torch.func.linearize(torch.sin, x)[0], x.sin())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
