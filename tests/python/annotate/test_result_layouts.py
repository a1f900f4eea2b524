# SPDX-License-Identifier: Apache-2.0
"""Results lie as eager lays them: what reshapes to a view there does so here."""

import itertools

import layouts
import pytest
import spmdx
import torch
import torch.nn.functional as F
from cuts import line

pytestmark = pytest.mark.on_the_cpu("kernels of GPUs lay results in other ways")

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def drawn(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def channels_last(tensor):
    return tensor.to(memory_format=CHANNELS_LAST[tensor.dim()])


IMAGE = channels_last(drawn(3, 4, 6, 6))
POOLED, INDICES = F.max_pool2d(IMAGE, 2, return_indices=True)
BROADCAST = drawn(5, 10, 6).permute(2, 1, 0).contiguous().permute(2, 1, 0)
# What makes a result, of the tensors that it takes.
PROGRAMS = {
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), [IMAGE, drawn(8, 4, 3, 3)]),
    "conv2d of a weight that lies channels last": (
        F.conv2d,
        [drawn(3, 4, 6, 6), channels_last(drawn(8, 4, 3, 3))],
    ),
    "conv_transpose2d": (F.conv_transpose2d, [IMAGE, drawn(4, 8, 3, 3)]),
    "pad": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), [IMAGE]),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), [IMAGE]),
    "channel_shuffle": (lambda x: torch.channel_shuffle(x, 2), [IMAGE]),
    "max_unpool2d": (lambda x, at: F.max_unpool2d(x, at, 2), [POOLED, INDICES]),
    "batch_norm": (
        lambda x: F.batch_norm(x, None, None, training=True),
        [drawn(6, 5, 4).transpose(0, 2).contiguous().transpose(0, 2)],
    ),
    "a broadcast quotient": (
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        [BROADCAST, drawn(10, 1) + 3],
    ),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), [drawn(4, 6, 5).permute(2, 1, 0)]),
}


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_write_to_a_reshaped_result_reaches_it_where_it_does_in_eager(name, devices):
    make, tensors = PROGRAMS[name]

    def run(device):
        given = [t.to(device) for t in tensors]
        if device == "spmdx":
            cut = ("x", *[None] * (given[0].dim() - 1))
            spmdx.mark_sharding(given[0], line(devices), cut)
        left = []
        for change in (lambda y: y.flatten(1), lambda y: y.movedim(1, -1).reshape(-1, y.shape[1])):
            y = make(*given)
            change(y).zero_()
            left.append(y.cpu())
        return left

    for found, wanted in zip(run("spmdx"), run("cpu"), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_result_that_lies_channels_last_has_a_view_of_its_pixels():
    y = F.conv2d(IMAGE.to("spmdx"), drawn(8, 4, 3, 3).to("spmdx"), padding=1)
    assert y.permute(0, 2, 3, 1).view(-1, 8).shape == (108, 8)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        y.view(3, -1)


# dims, transposed, batch, channels, groups, kernel, dtype
KINDS = [
    kind
    for kind in itertools.product(
        (1, 2, 3),
        (False, True),
        (1, 2),
        (1, 4),
        (1, 2),
        (1, 3),
        (torch.float32, torch.float64, torch.bfloat16),
    )
    if kind[3] % kind[4] == 0
]


def strides_of_convolutions(device, kind):
    """Of results and gradients, for operands that lie in each way."""
    dims, transposed, batch, channels, groups, kernel, dtype = kind
    convolve = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    x = drawn(batch, channels, *[5] * dims, dtype=dtype)
    w = drawn(
        *([channels, 4 // groups] if transposed else [4, channels // groups]),
        *[kernel] * dims,
        dtype=dtype,
    )
    lying = [lambda t: t, lambda t: t.movedim(1, -1).contiguous().movedim(-1, 1)]
    for of_x, of_w in itertools.product(lying, lying):
        given = [of_x(x).to(device).requires_grad_(), of_w(w).to(device).requires_grad_()]
        y = convolve(*given, stride=2, groups=groups)
        found = torch.autograd.grad(y, given, torch.ones_like(y))
        yield [t.stride() for t in (y, *found)]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_lie_as_the_backend_that_eager_chooses_lays_them(dims, enabled):
    other = {}
    with torch.backends.mkldnn.flags(enabled=enabled):
        for kind in KINDS:
            if kind[0] == dims:
                found, wanted = (list(strides_of_convolutions(d, kind)) for d in ("spmdx", "cpu"))
                if found != wanted:
                    other[kind] = (found, wanted)
    assert not other, f"{len(other)} differ, as {next(iter(other.items()))}"


def test_an_out_tensor_that_grows_lies_as_the_result_would():
    def run(device):
        x, out = drawn(4, 3).to(device).t(), torch.empty(0, device=device)
        return torch.add(x, x, out=out).stride(), torch.exp(
            x, out=torch.empty(0).to(device)
        ).stride()

    assert run("spmdx") == run("cpu")


@pytest.mark.parametrize("first", range(0, 6000, 1500))
def test_random_operands_make_results_that_lie_as_in_eager(first):
    differ = [said for said in map(layouts.difference, range(first, first + 1500)) if said]
    assert not differ, "\n".join(differ[:5])


def test_parts_that_change_places_in_images_lie_as_in_eager():
    for shape in ((3, 5, 6, 2), (1, 5, 1, 2), (4, 1, 3, 1)):
        x = channels_last(drawn(*shape))
        for shifts, dims in ((1, 2), ((1, -2), (1, 3)), (2, None)):
            plain, ours = (t.roll(shifts, dims) for t in (x, x.to("spmdx")))
            assert ours.stride() == plain.stride() and torch.equal(ours.cpu(), plain)
