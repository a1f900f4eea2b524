# SPDX-License-Identifier: Apache-2.0
"""Checks of shards that lie on an accelerator, each against plain PyTorch on the CPU.

    checks.py CHECK

Prints what must be the same wherever shards lie.
"""

import functools
import hashlib
import sys
import tempfile
import warnings

import spmdx
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from spmdx import _C

COUNT = spmdx.runtime.addressable_runtime_device_count()
MESH = spmdx.get_1d_mesh("data")
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def cut(x: torch.Tensor, dim: int = 0) -> torch.Tensor:
    spec = [None] * x.dim()
    spec[dim] = "data"
    return spmdx.mark_sharding(x, MESH, tuple(spec))


def random() -> None:
    """Every number that is drawn, cut and whole."""
    draws = {
        "uniform": lambda x: x.uniform_(-0.3, 1.7),
        "narrow": lambda x: x.uniform_(1.0, 1.0000001),
        "normal": lambda x: x.normal_(1, 3),
        "bernoulli": lambda x: x.bernoulli_(0.3),
        "exponential": lambda x: x.exponential_(2.0),
        "randint": lambda x: x.random_(-5, 50),
        "dropout": lambda x: F.dropout(x.fill_(1.0), 0.3),
        "by tensor": lambda x: torch.bernoulli(x.fill_(0.4)),
    }
    for name, draw in draws.items():
        for dtype in DTYPES:
            for place in (lambda x: x, cut, lambda x: cut(x, 1)):
                spmdx.manual_seed(11)
                made = draw(place(torch.empty(7, 9, dtype=dtype, device="spmdx")))
                bits = made.cpu().view(torch.uint8).numpy().tobytes()
                print(name, dtype, hashlib.sha256(bits).hexdigest()[:12])
    spmdx.manual_seed(11)
    print(torch.randperm(13, device="spmdx").tolist())
    shares = torch.arange(1.0, 6, device="spmdx")
    print(torch.multinomial(shares, 9, replacement=True).tolist())


def attention() -> None:
    """Scaled dot product attention and its gradients."""
    torch.manual_seed(0)
    masks = (None, torch.randn(5, 6, dtype=torch.float64), torch.rand(2, 1, 5, 6) > 0.4)
    for heads in (4, 2):
        for mask, causal in ((masks[0], False), (masks[0], True), (masks[1], False)):
            for place in (lambda x: x, cut, lambda x: cut(x, 2)):
                _compare_attention(heads, mask, causal, None, place)
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 5e-3)):
        for heads, causal in ((4, False), (4, True), (2, False)):  # where GPUs have fused kernels
            for place in (lambda x: x, cut, lambda x: cut(x, 2)):
                _compare_attention(heads, None, causal, 0.3, place, dtype, bound)
                _compare_attention(heads, None, causal, None, place, dtype, bound, keys=5)
    _compare_attention(4, masks[2], False, 0.3, cut)
    _compare_attention(4, torch.full((5, 6), -torch.inf).double(), False, None, lambda x: x)


def _compare_attention(
    heads, mask, causal, scale, place, dtype=torch.float64, bound=1e-10, keys=6
) -> None:
    shapes = ((2, 4, 5, 8), (2, heads, keys, 8), (2, heads, keys, 8))
    given = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    results = []
    for on_device in (False, True):
        of = [(x.to("spmdx") if on_device else x.double().clone()).requires_grad_() for x in given]
        placed = [place(x) for x in of] if on_device else of
        bias = mask.to("spmdx") if on_device and mask is not None else mask
        options = {"is_causal": causal, "scale": scale, "enable_gqa": heads != 4}
        out = F.scaled_dot_product_attention(*placed, bias, **options)
        out.square().sum().backward()
        results.append([out.detach().cpu().double(), *(x.grad.cpu().double() for x in of)])
    for got, wanted in zip(results[1], results[0], strict=True):
        least = 1e-12 if dtype == torch.float64 else bound * wanted.abs().max().item()
        torch.testing.assert_close(got, wanted, rtol=bound, atol=least, equal_nan=True)


def uploads() -> None:
    """What comes from the host may be overwritten at once, and goes back as it came."""
    for dtype in (*DTYPES, torch.int64, torch.bool, torch.complex64):
        host = torch.randint(0, 2, (6, 5)).to(dtype)
        before = host.clone()
        there = cut(host.to("spmdx"))
        number = torch.tensor(3.0).to("spmdx")
        host.zero_()
        spmdx.mark_step()
        assert torch.equal(there.cpu(), before) and number.item() == 3.0
    shards = [torch.full((2, 3), float(i)) for i in range(COUNT)]
    made = spmdx.ShardedTensor.from_local_shards(shards, MESH, ("data", None))
    for shard in shards:
        shard.zero_()
    rows = torch.arange(float(COUNT)).repeat_interleave(2)
    assert torch.equal((made + 0).cpu(), rows[:, None].expand(-1, 3))
    assert all(shard.data.device.type == "cpu" for shard in made.local_shards)
    turned = torch.arange(6.0).reshape(2, 3).T.to("spmdx")
    assert turned.stride() == (1, 3) and turned.cpu().tolist() == [[0, 3], [1, 4], [2, 5]]


def ops() -> None:
    """Ops with kernels of our own, those of the host, and indices that are wrong."""
    torch.manual_seed(0)
    table, index = torch.randn(10, 4), torch.randint(10, (3, 5))
    weight, image = torch.randn(4, 3, 3, 3), torch.randn(2, 3, 9, 8)
    for dim in (0, 1):
        got = F.embedding(index.to("spmdx"), cut(table.to("spmdx"), dim)).cpu()
        assert torch.equal(got, F.embedding(index, table))
    for dim in (0, 1, 2, 3):
        wanted = F.conv2d(image, weight, padding=1)
        got = F.conv2d(cut(image.to("spmdx"), dim), weight.to("spmdx"), padding=1)
        torch.testing.assert_close(got.cpu(), wanted)
        wanted = F.interpolate(image, scale_factor=2, mode="bilinear")
        got = F.interpolate(cut(image.to("spmdx"), dim), scale_factor=2, mode="bilinear")
        torch.testing.assert_close(got.cpu(), wanted)
    x = cut(table.to("spmdx"))
    assert torch.equal(torch.cat([x, x.sort(0)[0]]).cpu(), torch.cat([table, table.sort(0)[0]]))
    assert torch.equal(x[x > 0].cpu(), table[table > 0])  # a shape that depends on data
    assert torch.equal((x * 2 + torch.arange(4, device="spmdx")).cpu(), table * 2 + torch.arange(4))
    x[2:5, 1] = 7.0
    table[2:5, 1] = 7.0
    assert torch.equal(x.cpu(), table)
    torch.testing.assert_close(x.sum().item(), table.sum().item())
    small = torch.arange(30).reshape(10, 3).to(torch.uint16)  # GPUs have fewer kernels for it
    assert torch.equal(cut(small.to("spmdx")).roll(3, 0).cpu(), small.roll(3, 0))
    assert torch.equal(cut(small.to("spmdx"))[index.to("spmdx")].cpu(), small[index])
    _compare_gradients(F.logsigmoid, table.double())


def norms() -> None:
    """Batch norms in training and in evaluation, in 16 bits, and with devices that hold no rows."""
    simulated = torch.version.cuda is None and spmdx.runtime.device_type() == "CUDA"
    for dtype in (torch.float64, torch.float32 if simulated else torch.bfloat16):
        for rows in (5, 3, 1):
            x = torch.randn(rows, 4, 3, 3, dtype=torch.float64).to(dtype)
            bounds = {} if dtype == torch.float64 else {"rtol": 3e-2, "atol": 0.1}
            for training in (True, False):
                _compare_gradients(functools.partial(_norm, training), x, **bounds)


def _norm(training, x):
    held = (torch.linspace(low, high, 4) for low, high in ((-1, 1), (0.5, 2), (0.5, 1), (-1, 1)))
    held = [tensor.to(x.dtype).to(x.device) for tensor in held]
    out = F.batch_norm(x, *held, training=training)
    return torch.cat([out.flatten(), *(statistic.detach() for statistic in held[:2])])


def _compare_gradients(function, x, **bounds) -> None:
    results = []
    for of in (x.clone(), cut(x.to("spmdx"))):
        of.requires_grad_()
        out = function(of)
        out.square().sum().backward()
        results.append([out.detach().cpu(), of.grad.cpu()])
    for got, wanted in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, wanted, **bounds)


def checkpoint() -> None:
    """A save and a load, onto another layout."""
    x = cut(torch.arange(30.0).reshape(10, 3).to("spmdx"))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spmdx.checkpoint.save({"x": x}, folder)
        for load, at in ((spmdx.checkpoint.load, "path"), (dcp.load, "checkpoint_id")):
            y = cut(torch.zeros(10, 3).to("spmdx"), 1)
            load({"x": y}, **{at: folder})
            assert torch.equal(y.cpu(), x.cpu())


def streams() -> None:
    """What the program makes on a stream of its own, and what it reads there (simulated only)."""
    simulated = torch.ops.simulated_cuda
    host = torch.arange(12.0).reshape(4, 3)
    mine = simulated.to_device(host)
    simulated.synchronize()
    simulated.use_stream(2)
    for late, stream in ((100_000, 2), (100_000, 0)):
        simulated.set_delay(0, 2 - stream)
        simulated.set_delay(late, stream)
        made = mine * 3 + 1
        there = cut(made.to("spmdx"))
        del made  # its memory is taken for the next one
        other = mine * 0
        assert torch.equal((there * 2).cpu(), host * 6 + 2)
        there = there + 1
        spmdx.mark_step()
        (first, *_), _ = _C.local_data(there, on_host=False)
        assert torch.equal(simulated.to_host(first * 2), (host * 6 + 4)[: len(first)])
        del other


def too_late() -> None:
    """The place of tensors cannot change."""
    torch.ones(3).to("spmdx")
    try:
        spmdx.runtime.set_device_type("cpu")
    except spmdx.ShardingError as error:
        print(error)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
