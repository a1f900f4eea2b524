# SPDX-License-Identifier: Apache-2.0
"""``torch.inference_mode()``: views of tensors from outside are what they are in eager."""

import pytest
import spmdx
import torch
from cuts import line

MODELS = {
    "linear": (lambda: torch.nn.Linear(6, 3), (2, 5, 6)),
    "perceptron": (
        lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)),
        (4, 6),
    ),
    "convolution": (
        lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval(),
        (2, 3, 5, 5),
    ),
    "lstm": (lambda: torch.nn.LSTM(6, 4, batch_first=True), (2, 5, 6)),
    "gru": (lambda: torch.nn.GRU(6, 4, batch_first=True), (2, 5, 6)),
    "attention": (
        lambda: torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval(),
        (2, 5, 6),
    ),
    "norms": (
        lambda: torch.nn.Sequential(torch.nn.LayerNorm(6), torch.nn.GroupNorm(5, 5)),
        (2, 5, 6),
    ),
}
USES = {
    "row": lambda m, x: x[0],
    "view": lambda m, x: x.view(-1),
    "detach": lambda m, x: x.detach(),
    "parts": lambda m, x: torch.stack(list(x.chunk(2))),
    "rows": lambda m, x: torch.stack([row * 2 for row in x]),
    "strided": lambda m, x: x.as_strided((2, 2), (1, 2)),
    "state": lambda m, x: m.state_dict()["weight"],
    "loaded": lambda m, x: (m.load_state_dict(m.state_dict()), m.weight)[1],
    "parameter": lambda m, x: torch.nn.Parameter(x),
    "module": lambda m, x: torch.nn.Linear(2, 2).to(x.device).weight * 0,
    "written": lambda m, x: x.clone().view(-1).mul_(2),
    "from outside": lambda m, x: x.mul_(1),
}


def built(name, device, devices):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().to(device), torch.randn(shape).to(device)
    if devices:
        spmdx.mark_sharding(x, line(devices), ("x", *[None] * (len(shape) - 1)))
    return model, x


@pytest.mark.parametrize("devices", [0, 2, 3, 4, 8])
@pytest.mark.parametrize("name", MODELS)
def test_models_are_evaluated_as_in_eager(name, devices):
    found = []
    for device in ("cpu", "spmdx"):
        model, x = built(name, device, devices if device == "spmdx" else 0)
        with torch.inference_mode():
            made = model(x)
        made = made[0] if isinstance(made, tuple) else made
        assert made.is_inference() and not x.is_inference()
        found.append(made.cpu())
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("name", USES)
def test_tensors_from_outside_are_used_as_in_eager(name):
    found = []
    for device in ("cpu", "spmdx"):
        torch.manual_seed(0)
        module, x = torch.nn.Linear(6, 3).to(device), torch.randn(4, 6).to(device)
        with torch.inference_mode():
            made = USES[name](module, x)
            found.append((made.is_inference(), made.detach().cpu().flatten().tolist()))
        assert x.sum().item() == pytest.approx(float(x.cpu().sum()), rel=1e-5)
    assert found[0][0] == found[1][0]
    assert found[1][1] == pytest.approx(found[0][1])


@pytest.mark.parametrize("device", ["cpu", "spmdx"])
def test_training_goes_on_where_inference_was(device):
    module, x = torch.nn.Linear(6, 3).to(device), torch.ones(4, 6).to(device)
    with torch.inference_mode():
        scored = module(x)
        view = x[0]
    module(x).sum().backward()
    assert module.weight.grad is not None and view.sum().item() == 6
    with pytest.raises(RuntimeError, match="[Ii]nference tensor"):
        (module(x) * scored).sum().backward()
    with pytest.raises(RuntimeError, match="[Ii]nplace update to inference tensor"):
        scored.view(-1).add_(1)
