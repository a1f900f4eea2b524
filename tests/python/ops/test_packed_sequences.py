# SPDX-License-Identifier: Apache-2.0
"""Packed sequences: lengths on the host, as PyTorch demands, rows on the device."""

import pytest
import spmdx
import torch
from composites import compare, least_work
from models import assert_equal
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)

LENGTHS = torch.tensor([4, 2, 5, 1, 3])


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_packed_batch_and_its_gradient_equal_plain_pytorch(batch_first, devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))

    def there_and_back(x):
        packed = pack_padded_sequence(x, LENGTHS, batch_first, enforce_sorted=False)
        padded, lengths = pad_packed_sequence(packed, batch_first, padding_value=0.5)
        assert torch.equal(lengths, LENGTHS) and packed.batch_sizes.tolist() == [5, 4, 3, 2, 1]
        return packed.data.square(), padded

    x = drawn(5, 5, 3)
    for spec in (None, ("x", None, None), (None, "x", None), (None, None, "x")):
        compare(there_and_back, [x], mesh, [spec])


def test_lengths_on_the_device_are_refused_as_plain_pytorch_refuses_them():
    x = drawn(5, 5, 3).to("spmdx")
    with pytest.raises(RuntimeError, match="CPU"):
        pack_padded_sequence(x, LENGTHS.sort(descending=True).values.to("spmdx"))


LAYERS = {
    "LSTM": lambda **how: torch.nn.LSTM(3, 4, **how),
    "LSTM with a projection": lambda **how: torch.nn.LSTM(3, 4, proj_size=2, **how),
    "GRU": lambda **how: torch.nn.GRU(3, 4, **how),
    "RNN": lambda **how: torch.nn.RNN(3, 4, **how),
    "RNN with relu": lambda **how: torch.nn.RNN(3, 4, nonlinearity="relu", **how),
}


def step(name, how, device, mark=lambda x: None):
    """Results, states, and every gradient of a layer on packed sequences."""
    torch.manual_seed(0)
    layer = LAYERS[name](**how).double().to(device)
    x = drawn(5, 5, 3).to(device).requires_grad_()
    mark(x)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    out, state = layer(packed)
    padded, _ = pad_packed_sequence(out, batch_first=True)
    states = list(state) if isinstance(state, tuple) else [state]
    sum((t * t).sum() for t in (padded, *states)).backward()
    made = [padded, *states, x.grad, *(p.grad for p in layer.parameters())]
    return [t.detach().cpu() for t in made]


@pytest.mark.parametrize("how", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer_on_packed_sequences_equals_plain_pytorch(name, how):
    want = step(name, how, "cpu")
    for devices in (None, 2, 3, 4, 8):

        def mark(x, devices=devices):
            if devices:
                mesh = spmdx.Mesh(range(devices), (devices,), ("x",))
                spmdx.mark_sharding(x, mesh, ("x", None, None))

        with least_work():
            got = step(name, how, "spmdx", mark)
        for at, (a, b) in enumerate(zip(got, want, strict=True)):
            assert_equal(a, b, f"number {at} on {devices}")


def test_a_list_of_sequences_is_packed_on_the_device():
    rows = [drawn(n, 2) for n in (3, 2, 1)]
    got = pack_sequence([row.to("spmdx") for row in rows])
    want = pack_sequence(rows)
    assert torch.equal(got.data.cpu(), want.data)
    assert torch.equal(got.batch_sizes, want.batch_sizes) and got.data.device.type == "spmdx"
