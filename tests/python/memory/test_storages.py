# SPDX-License-Identifier: Apache-2.0
"""Storages that grow, shrink, are given up, or are seen as another type."""

import copy

import pytest
import spmdx
import torch
from shared_memory import MESHES, on_device, same
from torch.multiprocessing.reductions import StorageWeakRef


def test_a_view_as_reals_counts_its_offset_in_reals():
    def act(z):
        reals = torch.view_as_real(z[2:])
        assert reals.storage_offset() == 4
        reals.as_strided((2,), (1,)).fill_(9.0)
        return torch.view_as_real(z).clone()

    same(act, torch.arange(4.0) + 1j * torch.arange(4.0))


def takes_the_order_of_storage(x):
    x = x.view(2, 3).t()
    x.resize_(4, 2)
    return x.reshape(-1)[:6]


def finds_again_what_lay_behind(x):
    x.resize_(2)
    x.resize_(8)
    return x[:6]


def stays_tied_to_its_views(x):
    v = x.view(2, 3)
    x.resize_(8)
    x.fill_(1.0)
    return v


def is_written_through_an_older_view(x):
    v = x.view(3, 2).t()
    x.resize_(3, 4)
    v[1].fill_(7.0)
    return x.view(-1)[:6]


def takes_a_memory_format(x):
    y = x.repeat(4).view(2, 3, 2, 2)
    y.resize_(2, 3, 2, 2, memory_format=torch.channels_last)
    return y


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize(
    "act",
    [
        takes_the_order_of_storage,
        finds_again_what_lay_behind,
        stays_tied_to_its_views,
        is_written_through_an_older_view,
        takes_a_memory_format,
    ],
)
def test_a_resized_tensor(act, devices):
    same(act, torch.arange(6.0), devices)


def test_a_storage_gives_up_its_memory_and_gets_it_back():
    x = torch.arange(6.0).to("spmdx")
    view = x[2:]
    size = x.untyped_storage().nbytes()
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0
    for read in (lambda: x + 1, lambda: view.cpu(), lambda: x.fill_(1.0)):
        with pytest.raises(RuntimeError, match="resized to 0 bytes"):
            read()
    x.untyped_storage().resize_(size)
    x.copy_(torch.arange(6.0))
    assert view.tolist() == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.on_the_cpu("local shards are copies there")
def test_loaded_shards_hold_no_old_bytes():
    x = on_device(torch.zeros(8), 2)
    spmdx.sync(wait=True)
    old = StorageWeakRef(x.local_shards[0].data.untyped_storage())
    assert not old.expired()
    x.load_local_shards_([torch.ones(4)] * 2)
    assert old.expired()
    assert x.tolist() == [1.0] * 8


def test_memory_that_is_not_in_rows_is_seen_as_another_type():
    def act(x):
        y = x.to(torch.complex64).t().clone()  # laid out in columns
        torch.view_as_real(y)[0, :, 1] = 3.0
        seen = torch.empty(0, device=x.device).set_(y.untyped_storage(), 2, (3,), (2,))
        seen.mul_(2)
        return y

    same(act, torch.arange(6.0).reshape(2, 3))


def test_memory_that_grows_by_half_a_complex_number_is_copied():
    def act(x):
        z = torch.complex(x, x)
        z.imag.resize_(4, 2).fill_(1.0)
        return copy.deepcopy(z.imag.flatten())

    same(act, torch.arange(3.0))


def test_set_refuses_what_lies_before_a_storage():
    x, storage = torch.ones(12).to("spmdx"), torch.ones(12).to("spmdx").untyped_storage()
    with pytest.raises(RuntimeError, match="invalid storage offset -1"):
        x.set_(storage, -1, (2, 2), (1, 2))
    assert x.shape == (12,)
