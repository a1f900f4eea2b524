# SPDX-License-Identifier: Apache-2.0
"""Tensors and modules that are copied, moved, saved or loaded are what they are on the CPU."""

import copy
import io
import pickle

import pytest
import torch
from api_cases import Cases, build, draw
from torch import nn

case = Cases()


@case
def deepcopy_is_its_own(d):
    m = build(lambda: nn.Linear(2, 2), d)
    twin = copy.deepcopy(m)
    twin.weight.data.zero_()
    return m.weight, twin.weight


@case
def deepcopy_keeps_ties(d):
    m = build(lambda: nn.ModuleList([nn.Linear(3, 3, bias=False) for _ in range(2)]), d)
    m[1].weight = m[0].weight
    twin = copy.deepcopy(m)
    return twin[0].weight is twin[1].weight


@case
def saved_and_loaded(d):
    buffer = io.BytesIO()
    torch.save(draw(d, 3), buffer)
    buffer.seek(0)
    y = torch.load(buffer, weights_only=True)
    return y.device.type == torch.device(d).type, y


@case
def loaded_onto_the_cpu(d):
    buffer = io.BytesIO()
    torch.save({"p": nn.Parameter(draw(d, 3))}, buffer)
    buffer.seek(0)
    y = torch.load(buffer, weights_only=True, map_location="cpu")["p"]
    return y.device.type, y.requires_grad, y


@case
def saved_on_the_cpu_loaded_here(d):
    buffer = io.BytesIO()
    torch.save(draw("cpu", 3), buffer)
    buffer.seek(0)
    y = torch.load(buffer, weights_only=True, map_location=d)
    return y.device.type == d, y


@case
def pickled(d):
    return pickle.loads(pickle.dumps(draw(d, 3)))


@case
def numpy_forced(d):
    return torch.from_numpy(draw(d, 3).numpy(force=True))


@case
def meta_module_filled(d):
    with torch.device("meta"):
        m = nn.Linear(3, 3)
    m.to_empty(device=d)
    m.reset_parameters()
    return m.weight.device.type == d, bool(m.weight.std() > 0)


@case
def device_context(d):
    with torch.device(d):
        m = nn.Linear(3, 3)
    return m.weight.device.type == d


@case
def parameters_as_a_vector(d):
    m = build(lambda: nn.Linear(3, 3), d)
    vector = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(vector * 2, m.parameters())
    return m.weight


@pytest.mark.parametrize("name", sorted(case))
def test_gives_what_the_cpu_gives(name):
    case.check(name)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, index):
        return self.head(self.norm(self.embedding(index)))


INDEX = torch.tensor([1, 2, 3])


def test_conversions_keep_ties_and_values():
    torch.manual_seed(0)
    m = Tied()
    before = {k: v.clone() for k, v in m.state_dict().items()}
    for move in ("to", "bfloat16", "float", "to again", "cpu"):
        match move:
            case "to":
                m.to("spmdx")
            case "to again":
                m(INDEX.to("spmdx")).sum().backward()
                m.to(torch.float64).to(torch.float32)
            case _:
                getattr(m, move)()
        assert m.embedding.weight is m.head.weight, move
    assert m.embedding.weight.device.type == "cpu"
    got = m.embedding.weight
    torch.testing.assert_close(got, before["embedding.weight"], rtol=1e-2, atol=1e-2)


def test_checkpoints_of_model_and_optimizer_round_trip():
    torch.manual_seed(0)
    m = Tied().to("spmdx")
    optimizer = torch.optim.AdamW(m.parameters())
    m(INDEX.to("spmdx")).sum().backward()
    optimizer.step()
    buffer = io.BytesIO()
    torch.save({"m": m.state_dict(), "o": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True, map_location="cpu")
    twin = Tied()
    twin.load_state_dict(loaded["m"])
    twin.to("spmdx")
    other = torch.optim.AdamW(twin.parameters())
    other.load_state_dict(loaded["o"])
    for model, opt in ((m, optimizer), (twin, other)):
        opt.zero_grad()
        model(INDEX.to("spmdx")).sum().backward()
        opt.step()
    for key, value in m.state_dict().items():
        torch.testing.assert_close(twin.state_dict()[key].cpu(), value.cpu())


def test_modules_of_other_devices_convert_as_without_spmdx():
    m = nn.Linear(2, 2)
    weight = m.weight
    assert not torch.__future__.get_swap_module_params_on_conversion()
    m.to(torch.float64)
    assert m.weight is weight
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_data_loader_with_workers_and_pinned_memory():
    data = torch.utils.data.TensorDataset(torch.arange(12.0).view(6, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, pin_memory=True)
    total = sum(batch[0].to("spmdx", non_blocking=True).sum() for batch in loader)
    assert total.item() == 66
