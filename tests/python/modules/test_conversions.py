# SPDX-License-Identifier: Apache-2.0
"""Annotated modules are moved and converted as plain ones, with or without a graph alive."""

import copy
import subprocess
import sys
import warnings

import pytest
import spmdx
import torch
from marked_modules import ROWS, is_marked, make_mesh, marked_linear, warned
from torch import nn

CONVERSIONS = {
    "to": lambda m: m.to("spmdx"),
    "to_a_device": lambda m: m.to(torch.device("spmdx", 0)),
    "spmdx": lambda m: m.spmdx(),
    "to_bfloat16": lambda m: m.to(torch.bfloat16),
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "double": lambda m: m.double(),
    "float": lambda m: m.float(),
    "type": lambda m: m.type(torch.float64),
    "to_both": lambda m: m.to("spmdx", torch.float64),
    "share_memory": lambda m: m.share_memory(),
    "to_empty": lambda m: m.to_empty(device="spmdx"),
    "requires_grad_": lambda m: m.requires_grad_(False),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", CONVERSIONS)
@pytest.mark.parametrize("rows", [8, 5])
def test_conversions_keep_the_annotation_and_equal_eager(mesh, way, rows):
    layer, plain = marked_linear(mesh, rows), marked_linear(mesh, rows).cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = CONVERSIONS[way](layer)
    if way not in ("to", "to_a_device", "spmdx", "to_both", "share_memory", "to_empty"):
        plain = CONVERSIONS[way](plain)
    elif way == "to_both":
        plain = plain.double()
    assert is_marked(layer.weight, "x", None) and isinstance(layer.weight, nn.Parameter)
    assert layer.weight.dtype == plain.weight.dtype
    assert layer.weight.requires_grad == plain.weight.requires_grad
    assert layer.weight.local_shards[0].data.shape == (-(-rows // mesh.shape()["x"]), 3)
    if way != "to_empty":
        assert torch.equal(layer.weight.cpu(), plain.weight)


@pytest.mark.parametrize("way", ["to_bfloat16", "half", "double", "type", "to_both"])
def test_a_conversion_keeps_parameters_optimizers_ties_hooks_and_gradients(mesh, way):
    layer = marked_linear(mesh)
    layer.twin = layer.weight
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    calls = []
    layer.weight.register_hook(lambda g: calls.append(1))
    layer(ROWS.to("spmdx")).sum().backward()
    weight, gradient = layer.weight, layer.weight.grad
    CONVERSIONS[way](layer)
    assert layer.weight is weight and layer.twin is weight and weight.grad is gradient
    assert gradient.dtype == weight.dtype
    before = weight.detach().cpu()
    optimizer.step()
    assert torch.equal(weight.detach().cpu(), before - 0.5 * gradient.cpu())
    layer(ROWS.to("spmdx", weight.dtype)).sum().backward()
    assert len(calls) == 2


def test_hooks_on_a_cpu_parameter_live_on_after_the_move():
    layer, calls = nn.Linear(3, 4), []
    layer.weight.register_hook(lambda g: g * 2)
    layer.weight.register_post_accumulate_grad_hook(lambda p: calls.append(p is layer.weight))
    layer.to("spmdx")
    layer(torch.ones(1, 3).to("spmdx")).sum().backward()
    assert layer.weight.grad.cpu().eq(2).all() and calls == [True]


def test_a_model_moves_while_a_graph_of_it_is_alive():
    layer = nn.LayerNorm(3)
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    want = layer(ROWS)
    weight = layer.weight
    layer.to("spmdx")
    assert layer.weight is weight and type(weight) is nn.Parameter
    assert torch.allclose(layer(ROWS.to("spmdx")).cpu(), want, atol=1e-6)
    layer(ROWS.to("spmdx")).square().sum().backward()
    optimizer.step()
    assert not torch.allclose(layer(ROWS.to("spmdx")).cpu(), want)
    assert torch.equal(want, want.clone())  # the old result stays what it was


def test_an_old_graph_keeps_what_it_saved_and_refuses_gradients_that_would_be_lost():
    layer, x = nn.Linear(3, 4), ROWS.clone().requires_grad_()
    y, weight = layer(x), layer.weight.detach().clone()
    layer.to("spmdx")
    (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.equal(gradient, weight.sum(0).expand(5, 3))
    with pytest.raises(RuntimeError, match=r"test_conversions.py:\d+: backward: .*was moved"):
        y.sum().backward()


def test_leaving_the_device_ends_annotations_with_one_warning():  # once a line
    mesh = make_mesh((4,))
    layer = marked_linear(mesh)
    spmdx.mark_sharding(layer.bias, mesh, ("x",))
    said = warned(lambda: layer.cpu())
    assert len(said) == 1 and said[0].startswith("test_conversions.py:")
    assert "leaves device 'spmdx'" in said[0] and "mark_sharding again" in said[0]
    assert type(layer.weight) is nn.Parameter and layer.weight.device.type == "cpu"
    layer.to("spmdx")
    assert spmdx.get_annotation(layer.weight) is None


def test_nothing_is_said_of_modules_without_annotations():
    layer = nn.Linear(3, 4).to("spmdx")
    assert warned(lambda: layer.cpu().to("spmdx").double().cpu()) == []


def test_tied_weights_stay_tied_through_moves_with_or_without_a_graph(mesh):
    embedding, head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
    head.weight = embedding.weight
    net = nn.Sequential(embedding, head)
    graph = net(torch.tensor([1, 2]))
    net.to("spmdx")
    assert net[0].weight is net[1].weight
    spmdx.mark_sharding(net[0].weight, mesh, ("x", None))
    assert is_marked(net[1].weight, "x", None)
    twin = copy.deepcopy(net.double())
    assert twin[0].weight is twin[1].weight and is_marked(twin[1].weight, "x", None)
    assert torch.allclose(net(torch.tensor([1, 2]).to("spmdx")).cpu().float(), graph, atol=1e-6)


def test_programs_without_the_device_see_pytorch_unchanged():
    code = (
        "import torch, copy\n"
        "def facts():\n"
        "    layer = torch.nn.Linear(2, 2); weight = layer.weight\n"
        "    weight.register_hook(lambda g: g); layer(torch.ones(1, 2)).sum().backward()\n"
        "    moved = layer.to('meta'); same = layer.weight is weight\n"
        "    other = torch.nn.Linear(2, 2); w = other.weight; other.double()\n"
        "    p = torch.nn.Parameter(other.weight)\n"
        "    other.load_state_dict(other.state_dict(), assign=True)\n"
        "    return same, other.weight is w, type(p), other.weight.dtype, type(moved)\n"
        "before = facts(); import spmdx; after = facts()\n"
        "assert before == after, (before, after)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr


def test_functions_that_modules_apply_may_take_and_give_what_is_no_tensor():
    class Boxed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.box = [torch.ones(2)]

        def _apply(self, fn, recurse=True):
            super()._apply(fn, recurse)
            self.name, self.box = fn.__name__, fn(self.box)
            return self

    def doubled(x):
        return x.double() if isinstance(x, torch.Tensor) else [each.double() for each in x]

    module = Boxed()
    torch.nn.Sequential(module)._apply(doubled)
    assert module.name == "doubled" and module.box[0].dtype == torch.float64


@pytest.mark.parametrize("make", [torch.nn.LazyLinear, lambda n: torch.nn.LazyConv1d(n, 1)])
def test_modules_without_numbers_yet_can_be_moved(make):
    module = torch.nn.Sequential(make(3)).to("spmdx")
    assert module(torch.ones(2, 4, 3).to("spmdx")).device.type == "spmdx"
    assert make(3).to("spmdx").cpu()(torch.ones(2, 4, 3)).device.type == "cpu"
