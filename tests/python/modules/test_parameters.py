# SPDX-License-Identifier: Apache-2.0
"""Parameters with annotations are copied, loaded, replaced and parametrized as plain ones."""

import copy
import io

import pytest
import spmdx
import torch
import torch.nn.utils.prune
from hardware import assert_same
from marked_modules import ROWS, is_marked, make_mesh, marked_linear, warned
from torch import nn


def test_a_deepcopy_has_no_gradient_where_it_is_a_parameter(mesh):
    def trained_twice(layer, device):
        x = ROWS.to(device)
        layer(x).sum().backward()
        twin = copy.deepcopy(layer)
        assert twin.weight.grad is None and twin.bias.grad is None
        twin(x).sum().backward()
        return twin.weight.grad.cpu()

    plain = marked_linear(mesh).cpu()
    assert_same(trained_twice(marked_linear(mesh), "spmdx"), trained_twice(plain, "cpu"))


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


def test_data_of_another_rank_ends_the_annotation_with_a_warning():  # once a line
    mesh = make_mesh((4,))
    layer = marked_linear(mesh)
    said = warned(lambda: setattr(layer.weight, "data", torch.zeros(24).to("spmdx")))
    assert len(said) == 1 and "[24]" in said[0] and said[0].startswith("test_parameters.py:")
    assert spmdx.get_annotation(layer.weight) is None and layer.weight.shape == (24,)


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
        with torch.no_grad():  # of full rank: reflections of another are at the mercy of rounding
            layer.weight.copy_(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
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
