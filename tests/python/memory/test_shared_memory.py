# SPDX-License-Identifier: Apache-2.0
"""Writes through views that overlap or repeat elements: what changes, and what is refused."""

import pytest
import torch
from shared_memory import MESHES, same


def window_of_a_copy(x):
    p = x.unfold(0, 3, 2).contiguous()
    p[:, 0] = 0
    return p


def row_of_a_strided_clone(x):
    p = x.as_strided((4, 3), (1, 1)).clone()
    p[1:3] *= 2
    return p


def gradient_of_a_copy(x):
    x = x.requires_grad_()
    p = x.unfold(0, 3, 1).contiguous()
    p[1:3] *= 2
    (p * p).sum().backward()
    return x.grad


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("act", [window_of_a_copy, row_of_a_strided_clone, gradient_of_a_copy])
def test_a_write_to_a_copy_of_overlapping_windows_changes_nothing_else(act, devices):
    same(act, torch.arange(1.0, 10.0), devices)


def diagonal_of_windows(x):
    x.unfold(0, 2, 1).diagonal().fill_(-1.0)
    return x


def row_of_a_strided_view(x):
    x.as_strided((4, 3), (0, 1))[2].mul_(-1)
    return x


def diagonal_of_a_strided_view(x):
    x.as_strided((4, 3), (2, 1)).diagonal().mul_(-1)
    return x


def column_of_the_first_window(x):
    x.unfold(0, 3, 1).transpose(1, 2)[0, :, 1].copy_(torch.arange(3.0, device=x.device))
    return x


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize(
    "act",
    [
        diagonal_of_windows,
        row_of_a_strided_view,
        diagonal_of_a_strided_view,
        column_of_the_first_window,
    ],
)
def test_a_write_through_part_of_an_overlapping_view_is_whole(act, devices):
    same(act, torch.arange(16.0).reshape(8, 2), devices)


@pytest.mark.parametrize("conjugated", [False, True])
def test_parts_of_a_repeated_complex_number_are_written_one_by_one(conjugated):
    def act(z):
        repeated = z.expand(2, 3)
        if conjugated:
            repeated.conj()[0, :2].mul_(2j)
        else:
            torch.view_as_real(repeated).diagonal(0, 0, 2)[1].fill_(7.0)
        return torch.view_as_real(z).clone()

    same(act, torch.arange(3.0) + 1j * torch.arange(3.0, 6.0))


def some_places(y):
    return torch.arange(12, device=y.device).view(3, 4) % 8 == 1


FILLS = {
    "fill_": lambda y: y.fill_(3.0),
    "zero_": lambda y: y.zero_(),
    "masked_fill_": lambda y: y.masked_fill_(some_places(y), 5.0),
}


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.filterwarnings("ignore:Use of masked_fill_")
def test_repeated_elements_may_be_filled(fill, devices):
    def act(x):
        FILLS[fill](x[0:1].expand(3, 4))
        return x

    same(act, torch.arange(8.0).reshape(2, 4), devices)


@pytest.mark.parametrize("act", [lambda y: y.add_(1), lambda y: y.copy_(torch.ones(3, 4))])
def test_repeated_elements_are_written_by_no_other_op(act):
    for device in ("cpu", "spmdx"):
        x = torch.ones(1, 4).to(device)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            act(x.expand(3, 4))
        assert torch.equal(x.cpu(), torch.ones(1, 4))


def test_overlapping_windows_are_written_by_no_op_that_gives_them_different_numbers():
    x = torch.arange(4.0).to("spmdx")
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x.unfold(0, 2, 1).add_(1)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


PARTLY = {
    "add_": lambda x: x[1:].add_(x[:-1]),
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "out=": lambda x: torch.add(x[:-1], 1, out=x[1:]),
    "transposed": lambda x: x.view(3, 3).add_(x.view(3, 3).t()),
    "foreach": lambda x: torch._foreach_add_([x[1:]], [x[:-1]]),
    "index_add_ of itself": lambda x: x.index_add_(0, torch.arange(9, device=x.device), x[:]),
}


@pytest.mark.parametrize("name", PARTLY)
def test_operands_that_partly_cover_what_is_written_are_refused(name):
    for device in ("cpu", "spmdx"):
        x = torch.arange(9.0).to(device)
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written"):
            PARTLY[name](x)
        assert torch.equal(x.cpu(), torch.arange(9.0))


@pytest.mark.parametrize("devices", MESHES)
def test_operands_that_are_what_is_written_are_not_refused(devices):
    def act(x):
        x.add_(x[:])
        x.copy_(x.view_as(x))
        x[:4].add_(x[4:8])
        return torch.mul(x, x.detach(), out=x)

    same(act, torch.arange(9.0), devices)
