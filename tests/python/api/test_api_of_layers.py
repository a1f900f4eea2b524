# SPDX-License-Identifier: Apache-2.0
"""Layers, losses and their gradients give on the device what they give on the CPU."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from api_cases import Cases, build, draw
from torch import nn
from torch.utils.checkpoint import checkpoint

case = Cases()


def attended(d, mask=None, causal=False, grad_mask=False):
    q, k, v = (draw(d, 2, 2, 8, 4, seed=s).requires_grad_() for s in (1, 2, 3))
    if mask is not None:
        mask = mask.to(d).requires_grad_(grad_mask)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    out.pow(2).sum().backward()
    return out, q.grad, k.grad, v.grad


@case
def attention(d):
    return attended(d)


@case
def attention_causal(d):
    return attended(d, causal=True)


@case
def attention_with_a_mask(d):
    return attended(d, draw("cpu", 8, 8))


@case
def attention_with_a_boolean_mask(d):
    return attended(d, torch.ones(8, 8, dtype=torch.bool).tril())


@case
def attention_with_a_trained_mask(d):
    return attended(d, draw("cpu", 8, 8), grad_mask=True)


@case
def attention_with_dropout_of_everything_but_nothing(d):
    q = draw(d, 1, 2, 8, 4)
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).shape == q.shape


@case
def attention_of_fewer_key_heads(d):
    q, k = draw(d, 1, 4, 8, 4), draw(d, 1, 2, 8, 4, seed=2)
    return F.scaled_dot_product_attention(q, k, k, enable_gqa=True)


@case
def conv_bn_pool(d):
    def make():
        layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 2))

    m = build(make, d)
    m(draw(d, 2, 3, 8, 8)).sum().backward()
    return m[0].weight.grad, m[1].running_mean, m[1].running_var, m[1].num_batches_tracked


@case
def batch_norm_twice_in_one_graph(d):
    m = build(lambda: nn.BatchNorm1d(4), d)
    m(draw(d, 8, 4))
    y = m(draw(d, 8, 4, seed=2))
    m.eval()
    return m.running_mean, m.running_var, m.num_batches_tracked, y, m(draw(d, 8, 4))


@case
def batch_norm_whose_output_nobody_needs(d):
    m = build(lambda: nn.BatchNorm1d(4), d)
    m(draw(d, 8, 4))
    return m.running_mean, m.running_var


@case
def gradient_of_a_layer_norm_reshaped(d):
    m = build(lambda: nn.LayerNorm(6), d)
    x = draw(d, 6, 4, 2).requires_grad_()
    y = m(x.permute(2, 1, 0))
    (y.reshape(-1) * draw(d, 48)).sum().backward()
    return x.grad, m.weight.grad


@case
def losses_on_transposed_inputs(d):
    x = draw(d, 6, 4).requires_grad_()
    t = x.t()
    loss = F.softplus(t).reshape(-1).sum() + F.elu(t).reshape(-1).pow(2).sum()
    loss = loss + F.mse_loss(t, draw(d, 4, 6, seed=2)) + F.log_softmax(t, 0).reshape(-1)[3]
    loss.backward()
    return x.grad


def recurrent(d, make):
    m = build(make, d)
    y, _ = m(draw(d, 5, 2, 3))
    y.pow(2).sum().backward()
    return y, m.weight_ih_l0.grad, m.weight_hh_l0.grad, m.bias_hh_l0.grad


@case
def lstm(d):
    return recurrent(d, lambda: nn.LSTM(3, 4))


@case
def lstm_two_ways_two_layers(d):
    return recurrent(d, lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True))


@case
def gru(d):
    return recurrent(d, lambda: nn.GRU(3, 4))


@case
def rnn_cells(d):
    lstm_cell = build(lambda: nn.LSTMCell(3, 4), d)
    gru_cell = build(lambda: nn.GRUCell(3, 4), d)
    x = draw(d, 2, 3)
    with torch.no_grad():
        return [*lstm_cell(x), gru_cell(x)]


@case
def weight_norm(d):
    m = build(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), d)
    m(draw(d, 2, 3)).sum().backward()
    return m.parametrizations.weight.original1.grad


@pytest.mark.parametrize("name", sorted(case))
def test_gives_what_the_cpu_gives(name):
    case.check(name)


def test_dropout_keeps_the_expected_share_and_checkpoint_repeats_it():
    x = torch.ones(10_000, device="spmdx", requires_grad=True)
    y = F.dropout(x, 0.25)
    assert abs(y.mean().item() - 1) < 0.05
    z = checkpoint(lambda t: F.dropout(t, 0.5), x, use_reentrant=False)
    z.sum().backward()
    assert torch.equal(x.grad.cpu(), z.detach().cpu())


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["heads last", "contiguous", "permuted", "batch last"])
def test_attention_is_laid_out_as_in_eager(name, grad):
    def query(device):
        x = torch.linspace(-1, 1, 280, dtype=torch.float64).to(device)
        return {
            "heads last": lambda: x.view(7, 5, 2, 4).transpose(1, 2),
            "contiguous": lambda: x.view(7, 2, 5, 4),
            "permuted": lambda: x.view(4, 7, 2, 5).permute(1, 2, 3, 0),
            "batch last": lambda: x.view(2, 5, 4, 7).permute(3, 0, 1, 2),
        }[name]()

    host, ours = (query(device).detach().requires_grad_(grad) for device in ("cpu", "spmdx"))
    want = F.scaled_dot_product_attention(host, host, host)
    got = F.scaled_dot_product_attention(ours, ours, ours)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got.detach().cpu(), want.detach())
    if grad:
        want.square().sum().backward()
        got.square().sum().backward()
        torch.testing.assert_close(ours.grad.cpu(), host.grad)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_batch_norm_with_an_expanded_weight_reads_that_weight(devices):
    """The CPU kernel of the backward takes a weight of stride 0 for a contiguous one."""
    spmdx.runtime.set_device_count(max(4, spmdx.runtime.global_runtime_device_count()))
    mesh = spmdx.Mesh(range(devices), (devices,), ("x",))

    def gradient(x, scale, expanded):
        x = x.detach().requires_grad_()
        weight = scale.expand(6) if expanded else scale.expand(6).clone()
        y = F.batch_norm(x, None, None, weight=weight, training=True)
        (y * torch.linspace(1, 2, 6, dtype=x.dtype).to(x.device)).square().sum().backward()
        return x.grad.cpu()

    x, scale = torch.randn(8, 6, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    ours = spmdx.mark_sharding(x.to("spmdx"), mesh, ("x", None))
    torch.testing.assert_close(gradient(ours, scale.to("spmdx"), True), gradient(x, scale, False))
