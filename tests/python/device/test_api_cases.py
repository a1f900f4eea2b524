# SPDX-License-Identifier: Apache-2.0
"""PyTorch's API around a tensor gives on the device what it gives on the CPU."""

import copy
import io
import pickle

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

CASES = {}


def case(function):
    """Runs on both devices; what it returns is compared."""
    CASES[function.__name__] = function
    return function


def draw(device, *shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def build(make, device):
    torch.manual_seed(0)
    return make().to(device)


def host(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, (list, tuple)):
        return [host(v) for v in value]
    return value


def assert_same(got, expected):
    if isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, check_stride=False)
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
    else:
        assert got == expected


@case
def view_of_a_double_copy_written(d):
    y = draw(d, 3, 4).to(torch.float64)
    y.view(-1).add_(1)
    return y


@case
def cpu_copies_from_the_device(d):
    c = torch.zeros(3, 4)
    c.copy_(draw(d, 3, 4))
    return c


@case
def data_assigned(d):
    x, y = draw(d, 3), draw(d, 5)
    x.data = y
    x.add_(1)
    return x, y


@case
def data_written_in_place(d):
    x = draw(d, 3)
    x.data.add_(1)
    return x


@case
def detached_alias_written(d):
    x = draw(d, 3).requires_grad_()
    x.detach().mul_(2)
    return x


@case
def set_to_another_tensor(d):
    x, y = draw(d, 3), draw(d, 4)
    x.set_(y)
    x.add_(1)
    return x, y


@case
def out_argument_resized(d):
    x, out = draw(d, 3), torch.empty(0, device=d)
    torch.add(x, x, out=out)
    return out


@case
def view_kept_across_a_step(d):
    x = draw(d, 4, 4)
    v = x[1:3]
    spmdx.mark_step()
    x.add_(1)
    first = v.cpu().clone()
    v.mul_(2)
    spmdx.mark_step()
    return first, x, v


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
def as_strided_written(d):
    x = draw(d, 4, 4)
    v = x.as_strided((2, 2), (4, 1), 1)
    v.add_(1)
    return x, v


@case
def index_put_and_mask_put(d):
    x = draw(d, 4, 4)
    x[torch.tensor([0, 2], device=d)] = 1.0
    x[x > 0.5] = 0
    return x


@case
def cpu_index(d):
    return draw(d, 4, 4)[torch.tensor([0, 2])]


@case
def views_of_many_results(d):
    x = draw(d, 4, 4)
    a, b = x.chunk(2, 1)
    a.add_(1)
    x.unbind(0)[1].zero_()
    x.split([1, 3], 0)[1].mul_(3)
    return x, b


@case
def in_place_view_ops(d):
    x = draw(d, 3, 4)
    x.t_()
    x.add_(1)
    x.unsqueeze_(0)
    x.squeeze_(0)
    x.transpose_(0, 1)
    return x, x.stride()


@case
def diagonal_filled(d):
    x = draw(d, 4, 4)
    x.diagonal().fill_(7)
    x.triu_()
    return x


@case
def gradient_accumulation(d):
    m = build(lambda: nn.Linear(3, 2), d)
    for i in range(3):
        m(draw(d, 4, 3, seed=i)).pow(2).sum().backward()
    return m.weight.grad, m.bias.grad


@case
def in_place_on_a_view_in_autograd(d):
    x = draw(d, 4, 6).requires_grad_()
    y = x * 2
    y[:, 1:3].mul_(3)
    y.t()[0].add_(1)
    y.pow(2).sum().backward()
    return x.grad


@case
def hooks(d):
    x = draw(d, 3).requires_grad_()
    x.register_hook(lambda g: g * 2)
    m = build(lambda: nn.Linear(3, 3), d)
    seen = []
    m.register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape)))
    m.register_full_backward_hook(lambda module, gin, gout: (gin[0] * 3,))
    m(x * x).sum().backward()
    return x.grad, seen


@case
def custom_function(d):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * x.exp()

    x = draw(d, 3).requires_grad_()
    Exp.apply(x).sum().backward()
    return x.grad


def checkpointed(d, reentrant):
    m = build(lambda: nn.Linear(3, 3), d)
    x = draw(d, 2, 3).requires_grad_()
    checkpoint(lambda t: torch.relu(m(t)), x, use_reentrant=reentrant).sum().backward()
    return x.grad, m.weight.grad


@case
def checkpoint_reentrant(d):
    return checkpointed(d, True)


@case
def checkpoint_not_reentrant(d):
    return checkpointed(d, False)


@case
def autocast_matmul(d):
    with torch.autocast(d, dtype=torch.bfloat16):
        y = draw(d, 3, 3) @ draw(d, 3, 3, seed=2)
    return str(y.dtype)


@case
def gradient_scaler(d):
    m = build(lambda: nn.Linear(3, 2), d)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(d)
    for i in range(2):
        optimizer.zero_grad()
        scaler.scale(m(draw(d, 4, 3, seed=i)).sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return m.weight, scaler.get_scale()


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
def sums_without_nans_of_no_dims(d):
    x = draw(d, 2, 3)
    return torch.nansum(x, dim=[]) + torch.nansum(x, dim=(), keepdim=True)


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


def optimized(d, make_optimizer, steps=3):
    m = build(lambda: nn.Linear(3, 2), d)
    optimizer = make_optimizer(m.parameters())
    for i in range(steps):
        optimizer.zero_grad()
        m(draw(d, 4, 3, seed=i)).pow(2).sum().backward()
        optimizer.step()
        spmdx.mark_step()
    return m.weight, m.bias


@case
def adamw(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1))


@case
def adamw_single_tensor(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False))


@case
def adamw_fused(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1, fused=True))


@case
def adamw_capturable(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1, capturable=d != "cpu"))


@case
def sgd_momentum(d):
    return optimized(d, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))


@case
def adagrad_rmsprop(d):
    return optimized(d, torch.optim.Adagrad), optimized(d, torch.optim.RMSprop)


@case
def optimizer_made_before_the_move(d):
    torch.manual_seed(0)
    m = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(m.parameters(), lr=0.1)
    m.to(d)
    m(draw(d, 4, 3)).pow(2).sum().backward()
    optimizer.step()
    return m.weight, optimizer.param_groups[0]["params"][0] is m.weight


@case
def clip_grad_norm(d):
    m = build(lambda: nn.Linear(3, 2), d)
    m(draw(d, 4, 3)).pow(2).sum().backward()
    return nn.utils.clip_grad_norm_(m.parameters(), 0.5), m.weight.grad


@case
def item_in_the_middle(d):
    x = draw(d, 4)
    y = x * 2
    if y.sum().item() > 0:
        y = y + 1
    return y, bool((y > 0).any()), y.tolist()


@case
def data_dependent_shapes(d):
    x = draw(d, 12).round()
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    n = torch.tensor([1, 0, 2], device=d)
    return (
        (x > 0).nonzero(), x[x > 0], x.masked_select(x < 0), values, inverse, counts,
        torch.repeat_interleave(n), torch.bincount(n), torch.equal(x, x), x.unique_consecutive(),
        torch.allclose(x, x), draw(d, 3, 4)[:, torch.tensor([True, False, True, True], device=d)],
    )  # fmt: skip


@case
def boolean_mask_in_autograd(d):
    x = draw(d, 4, 4).requires_grad_()
    (x[x > 0] ** 2).sum().backward()
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
def vmap_of_grad(d):
    return torch.func.vmap(torch.func.grad(lambda x: (x**2).sum()))(draw(d, 3, 4))


@case
def functional_call_and_jacobian(d):
    m = build(lambda: nn.Linear(3, 2), d)
    y = torch.func.functional_call(m, dict(m.named_parameters()), (draw(d, 4, 3),))
    return y, torch.func.jacrev(lambda x: x.sin())(draw(d, 3))


@case
def compiled_with_aot_eager(d):
    torch._dynamo.reset()
    f = torch.compile(lambda x: (x * 2 + 1).relu(), backend="aot_eager")
    x = draw(d, 3).requires_grad_()
    f(x).sum().backward()
    return f(x), x.grad


@case
def aliases_agree(d):
    x = draw(d, 4)
    v = x[1:]
    same = x.untyped_storage()._cdata == v.untyped_storage()._cdata
    return same, v.storage_offset(), v.is_contiguous(), x.untyped_storage().nbytes()


@case
def weight_norm(d):
    m = build(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), d)
    m(draw(d, 2, 3)).sum().backward()
    return m.parametrizations.weight.original1.grad


@case
def in_place_arithmetic(d):
    x, y = draw(d, 3), draw(d, 3, seed=2) * 2
    x.lerp_(y, 0.1)
    x.clamp_(-1, 1)
    x.copy_(y.double())
    x += 1
    x **= 2
    return x


@case
def foreach_ops(d):
    return torch._foreach_norm([draw(d, 3), draw(d, 4)]), torch._foreach_add([draw(d, 3)], 1.5)


@case
def channels_last(d):
    x = draw(d, 2, 3, 4, 4).to(memory_format=torch.channels_last)
    return x.stride(), x.is_contiguous(memory_format=torch.channels_last), x.cpu().stride(), x


@case
def inference_mode(d):
    with torch.inference_mode():
        x = draw(d, 3)
        x[1:].add_(1)
        return x.cpu().clone()


@case
def resized(d):
    x = draw(d, 2, 3)
    x.resize_(2, 2)
    y = draw(d, 2)
    y.resize_(2)
    return x, y


@case
def complex_numbers(d):
    x = torch.view_as_complex(draw(d, 3, 2))
    y = (x * x.conj()).real + x.abs()
    torch.view_as_real(x).mul_(2)
    return torch.view_as_real(x), y, torch.fft.fft(draw(d, 4)).abs()


@case
def factories(d):
    ints = torch.arange(5, device=d), torch.full((2,), 3, device=d), torch.eye(3, device=d)
    like = torch.zeros_like(draw(d, 2)), draw(d, 2).new_ones(3), torch.full((2,), True, device=d)
    line = torch.linspace(0, 1, 5, device=d), torch.arange(0, 1, 0.25, device=d)
    return ints, like, line, torch.tensor([1, 2], device=d), torch.tril_indices(3, 3, device=d)


@case
def printed(d):
    x = draw(d, 3)
    return repr(x).split(", device")[0].rstrip(")")


@case
def histogram_of_ints(d):
    x = torch.tensor([1, 2, 2, 3], device=d)
    return torch.histc(x if d != "cpu" else x.float(), bins=3, min=1, max=3).long()


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


@pytest.mark.parametrize("name", sorted(CASES))
def test_gives_what_the_cpu_gives(name):
    expected = host(CASES[name]("cpu"))
    assert_same(host(CASES[name]("spmdx")), expected)


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


def test_host_buffer_may_be_reused_after_a_copy():
    x = torch.ones(3)
    y, z = x.to("spmdx"), torch.empty(3, device="spmdx").copy_(x)
    x.zero_()
    assert y.tolist() == z.tolist() == [1, 1, 1]


def test_random_state_is_saved_and_restored():
    spmdx.manual_seed(3)
    state = torch.spmdx.get_rng_state()
    first = torch.rand(4, device="spmdx").cpu()
    assert not torch.equal(first, torch.rand(4, device="spmdx").cpu())
    torch.spmdx.set_rng_state(state)
    assert torch.equal(first, torch.rand(4, device="spmdx").cpu())
    own = torch.Generator(device="spmdx").manual_seed(3)
    assert torch.equal(first, torch.rand(4, device="spmdx", generator=own).cpu())
    with torch.random.fork_rng(devices=[0], device_type="spmdx"):
        torch.rand(4, device="spmdx")


def test_dropout_keeps_the_expected_share_and_checkpoint_repeats_it():
    x = torch.ones(10_000, device="spmdx", requires_grad=True)
    y = F.dropout(x, 0.25)
    assert abs(y.mean().item() - 1) < 0.05
    z = checkpoint(lambda t: F.dropout(t, 0.5), x, use_reentrant=False)
    z.sum().backward()
    assert torch.equal(x.grad.cpu(), z.detach().cpu())


def test_tensors_of_two_devices_raise_as_eager_does():
    x = torch.ones(2, device="spmdx")
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(2)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3]


def test_wrong_shapes_raise_at_the_call():
    with pytest.raises(RuntimeError, match="shape|size"):
        torch.ones(2, 3, device="spmdx") @ torch.ones(2, 3, device="spmdx")
    with pytest.raises(RuntimeError, match="cast"):
        torch.ones(2, dtype=torch.int64, device="spmdx").add_(0.5)


def test_write_to_an_expanded_view_raises_as_eager_does():
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(3, 1, device="spmdx").expand(3, 4).add_(1)


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


def test_a_kernel_error_names_op_and_line_and_loses_nothing():
    m = nn.Embedding(4, 2).to("spmdx")
    before = m.weight.detach().cpu().clone()
    counter = torch.zeros(1, device="spmdx")
    spmdx.mark_step()
    counter.add_(1)
    bad = m(torch.tensor([9], device="spmdx"))
    with pytest.raises(IndexError, match=r"test_api_cases\.py:\d+: aten\.embedding: .*range"):
        bad.sum().item()
    assert torch.equal(m.weight.detach().cpu(), before)
    assert counter.item() in (0, 1)
    assert m(torch.tensor([1], device="spmdx")).shape == (1, 2)


def test_many_pending_ops_are_cut_and_freed():
    x = torch.zeros(1, device="spmdx")
    for _ in range(60_000):
        x = x + 1
    assert x.item() == 60_000


def test_tensors_of_two_meshes_raise_a_sharding_error_at_the_op_that_waits():
    spmdx.runtime.set_device_count(max(4, spmdx.runtime.global_runtime_device_count()))
    meshes = spmdx.Mesh(range(4), (4,), ("a",)), spmdx.Mesh(range(4), (2, 2), ("b", "c"))
    x, y = (torch.ones(8, 8, device="spmdx") for _ in meshes)
    spmdx.mark_sharding(x, meshes[0], ("a", None))
    spmdx.mark_sharding(y, meshes[1], ("b", None))
    with pytest.raises(spmdx.ShardingError, match="two meshes.*a=4.*b=2"):
        (x + y).sum().item()
    assert torch.ones(2, device="spmdx").sum().item() == 2
