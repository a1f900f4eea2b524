# SPDX-License-Identifier: Apache-2.0
"""Annotated modules live as plain ones: moved, converted, copied, loaded, tied and trained.

python tests/python/helpers/life_cycles.py 17 1000        # 1000 lives from seed 17 on
"""

import copy
import io
import os
import subprocess
import sys
import warnings

import life_cycles
import pytest
import spmdx
import torch
from torch import nn

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

A_TEST = 20
LIVES = int(os.environ.get("RANDOM_PROGRAMS", "60"))  # `--count N`
MESHES = [(2,), (3,), (4,), (8,), (2, 2)]


@pytest.mark.parametrize("first", range(0, LIVES, A_TEST))
def test_random_lives_equal_those_on_the_cpu(first):
    for seed in range(first, first + A_TEST):
        life = life_cycles.draft(seed)
        if life_cycles.judge(life):
            small, wrong = life_cycles.shrink(life)
            pytest.fail(f"{small}\n{wrong}")


def test_a_life_that_differs_is_found():
    class Forgetful(life_cycles.World):
        def write(self, n):
            if self.device == "cpu":
                super().write(n)

    life = life_cycles.Life(0, (4,), (("begin", 0), ("mark", 3), ("write", 3)))
    assert life_cycles.judge(life) == ""
    assert "instead of" in life_cycles.judge(life, Forgetful)


def test_the_lives_have_every_event_and_every_mesh():
    drafted = [life_cycles.draft(seed) for seed in range(300)]
    assert {name for life in drafted for name, _ in life.events} == {*life_cycles.NAMES, "begin"}
    assert {life.mesh for life in drafted} == set(MESHES)


def make_mesh(shape):
    devices = 1
    for extent in shape:
        devices *= extent
    return spmdx.Mesh(range(devices), shape, tuple("xy"[: len(shape)]))


@pytest.fixture(params=MESHES, ids=str)
def mesh(request):
    return make_mesh(request.param)


def marked_linear(mesh, rows=8):
    layer = nn.Linear(3, rows)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    layer.to("spmdx")
    spmdx.mark_sharding(layer.weight, mesh, ("x", None))
    return layer


def is_marked(tensor, *spec):
    annotation = spmdx.get_annotation(tensor)
    return annotation is not None and annotation.spec == spec and tensor.partition_spec == spec


ROWS = torch.linspace(-1, 2, 15).view(5, 3)

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
    with pytest.raises(RuntimeError, match=r"test_life_cycles.py:\d+: backward: .*was moved"):
        y.sum().backward()


def test_a_deepcopy_has_no_gradient_where_it_is_a_parameter(mesh):
    def trained_twice(layer, device):
        x = ROWS.to(device)
        layer(x).sum().backward()
        twin = copy.deepcopy(layer)
        assert twin.weight.grad is None and twin.bias.grad is None
        twin(x).sum().backward()
        return twin.weight.grad.cpu()

    plain = marked_linear(mesh).cpu()
    assert torch.equal(trained_twice(marked_linear(mesh), "spmdx"), trained_twice(plain, "cpu"))


def test_a_deepcopy_of_a_leaf_that_is_no_parameter_has_its_gradient(mesh):
    x = ROWS.to("spmdx").requires_grad_()
    spmdx.mark_sharding(x, mesh, ("x", None))
    (x * 2).sum().backward()
    twin = copy.deepcopy(x)
    assert twin.grad is not x.grad and twin.grad.cpu().eq(2).all() and is_marked(twin, "x", None)


def test_a_parameter_is_made_of_annotated_tensors(mesh):
    x = spmdx.mark_sharding(torch.ones(8, 3).to("spmdx"), mesh, ("x", None))
    weight = marked_linear(mesh).weight
    for source in (x, weight, weight.data, weight.detach()):
        made = nn.Parameter(source, requires_grad=source is not x)
        assert isinstance(made, nn.Parameter) and made is not source
        assert made.requires_grad == (source is not x) and is_marked(made, "x", None)
        with torch.no_grad():
            made.add_(1)
        assert torch.equal(made.cpu(), source.cpu())  # one memory
    assert type(weight.detach()) is torch.Tensor


def test_data_of_a_whole_and_of_a_view_keep_the_annotation(mesh):
    layer = marked_linear(mesh)
    expected = [p.detach().cpu() for p in layer.parameters()]
    vector = nn.utils.parameters_to_vector(layer.parameters()).detach()
    nn.utils.vector_to_parameters(vector * 2, layer.parameters())
    spmdx.mark_step()
    assert is_marked(layer.weight, "x", None)
    assert layer.weight.local_shards[0].data.shape == (-(-8 // mesh.shape()["x"]), 3)
    assert spmdx.get_sharding(layer.weight).spec == ("x", None)
    assert torch.equal(layer.weight.detach().cpu(), expected[0] * 2)
    layer.weight.data = layer.weight.data * 2
    assert is_marked(layer.weight, "x", None)
    assert torch.equal(layer.weight.detach().cpu(), expected[0] * 4)


def test_views_in_parameters_share_memory_with_their_vector_and_train(mesh):
    def trained(layer, device):
        vector = nn.utils.parameters_to_vector(layer.parameters()).detach() * 2
        nn.utils.vector_to_parameters(vector, layer.parameters())
        optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            layer(ROWS.to(device)).square().sum().backward()
            optimizer.step()
            if device == "spmdx":
                spmdx.mark_step()
        assert device == "cpu" or is_marked(layer.weight, "x", None)
        now = nn.utils.parameters_to_vector(layer.parameters()).detach()
        assert torch.equal(now.cpu(), vector.cpu())
        return now.cpu()

    plain = marked_linear(mesh).cpu()
    ours = trained(marked_linear(mesh), "spmdx")
    assert torch.allclose(ours, trained(plain, "cpu"), atol=1e-5)


def test_the_annotation_of_a_view_holds_for_later_steps_and_for_the_view_alone(mesh):
    whole = torch.arange(48.0).view(16, 3).to("spmdx")
    view = spmdx.mark_sharding(whole[:8], mesh, ("x", None))
    for _ in range(2):
        view.add_(1)
        spmdx.mark_step()
        assert is_marked(view, "x", None) and spmdx.get_annotation(whole) is None
        assert spmdx.get_sharding(view * 2).spec == ("x", None)
    assert torch.equal(whole.cpu()[:8], torch.arange(24.0).view(8, 3) + 2)
    spmdx.clear_sharding(view)
    assert spmdx.get_annotation(view) is None and type(view) is torch.Tensor


def test_planning_leaves_no_annotation_on_a_view(mesh):
    view = torch.zeros(16, 3).to("spmdx")[:8]
    with spmdx.plan_only():
        spmdx.mark_sharding(view, mesh, ("x", None))
    assert spmdx.get_annotation(view) is None


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_a_loaded_module_is_annotated_as_before(mesh, assign, strict):
    layer = marked_linear(mesh)
    layer.register_buffer("scale", torch.ones(8).to("spmdx"))
    spmdx.mark_sharding(layer.scale, mesh, ("x",))
    state = {k: v.clone() * 2 for k, v in layer.state_dict().items()}
    if not strict:
        del state["bias"]
    layer.load_state_dict(state, strict=strict, assign=assign)
    assert is_marked(layer.weight, "x", None) and is_marked(layer.scale, "x")
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.requires_grad
    assert torch.equal(layer.weight.detach().cpu(), state["weight"].cpu())


def warned(act):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        act()
    return [str(w.message) for w in caught]


def test_leaving_the_device_ends_annotations_with_one_warning():  # once a line
    mesh = make_mesh((4,))
    layer = marked_linear(mesh)
    spmdx.mark_sharding(layer.bias, mesh, ("x",))
    said = warned(lambda: layer.cpu())
    assert len(said) == 1 and said[0].startswith("test_life_cycles.py:")
    assert "leaves device 'spmdx'" in said[0] and "mark_sharding again" in said[0]
    assert type(layer.weight) is nn.Parameter and layer.weight.device.type == "cpu"
    layer.to("spmdx")
    assert spmdx.get_annotation(layer.weight) is None


def test_data_of_another_rank_ends_the_annotation_with_a_warning():  # once a line
    mesh = make_mesh((4,))
    layer = marked_linear(mesh)
    said = warned(lambda: setattr(layer.weight, "data", torch.zeros(24).to("spmdx")))
    assert len(said) == 1 and "[24]" in said[0] and said[0].startswith("test_life_cycles.py:")
    assert spmdx.get_annotation(layer.weight) is None and layer.weight.shape == (24,)


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


def test_a_saved_module_loads_with_its_annotations(mesh):
    layer, file = marked_linear(mesh), io.BytesIO()
    torch.save(layer, file)
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert is_marked(loaded.weight, "x", None) and torch.equal(loaded.weight, layer.weight)


def parametrized_layer(kind, device, mesh):
    layer = marked_linear(mesh)
    if device == "cpu":
        layer = layer.cpu()
    if kind == "weight_norm":
        return nn.utils.parametrizations.weight_norm(layer)
    if kind == "orthogonal":
        return nn.utils.parametrizations.orthogonal(layer, orthogonal_map="householder")
    if kind == "spectral_norm":
        layer = nn.utils.parametrizations.spectral_norm(layer)
        for vector in (layer.parametrizations.weight[0]._u, layer.parametrizations.weight[0]._v):
            vector.copy_(torch.linspace(0.1, 0.5, len(vector)))
        return layer
    return nn.utils.prune.l1_unstructured(layer, "weight", 0.25)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal", "prune"])
def test_parametrizations_of_a_marked_weight_train_and_come_off_as_in_eager(mesh, kind):
    def lived(device):
        layer = parametrized_layer(kind, device, mesh)
        optimizer = torch.optim.SGD(layer.parameters(), 0.05)
        for _ in range(2):
            optimizer.zero_grad()
            layer(ROWS.to(device)).square().mean().backward()
            optimizer.step()
        if kind == "prune":
            nn.utils.prune.remove(layer, "weight")
        else:
            nn.utils.parametrize.remove_parametrizations(layer, "weight")
        assert isinstance(layer.weight, nn.Parameter)
        return layer.weight.detach().cpu()

    assert torch.allclose(lived("spmdx"), lived("cpu"), atol=1e-5)


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
