# SPDX-License-Identifier: Apache-2.0
"""Tensors that share memory: what a write changes, what is refused, and what copies keep."""

import copy
import copyreg
import io
import pickle

import pytest
import spmdx
import torch
from torch.multiprocessing.reductions import StorageWeakRef

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

MESHES = [None, 2, 3, 4, 8]


def on_device(x, devices):
    x = x.to("spmdx")
    if devices is None:
        return x
    mesh = spmdx.Mesh(range(devices), (devices,), ("a",))
    return spmdx.mark_sharding(x, mesh, ("a",) + (None,) * (x.dim() - 1))


def same(act, x, devices=None):
    got, expected = act(on_device(x.clone(), devices)), act(x.clone())
    assert got.stride() == expected.stride()
    assert torch.equal(got.detach().cpu(), expected.detach())


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


def test_a_view_as_reals_counts_its_offset_in_reals():
    def act(z):
        reals = torch.view_as_real(z[2:])
        assert reals.storage_offset() == 4
        reals.as_strided((2,), (1,)).fill_(9.0)
        return torch.view_as_real(z).clone()

    same(act, torch.arange(4.0) + 1j * torch.arange(4.0))


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


# ---- sizes of storages ---------------------------------------------------------------------------


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


# ---- copies of several tensors -------------------------------------------------------------------


def reloaded(things):
    file = io.BytesIO()
    torch.save(things, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("copied", [copy.deepcopy, reloaded])
@pytest.mark.parametrize("order", ["av", "va", "vw"])
def test_copies_of_tensors_that_share_memory_share_memory(copied, order, devices):
    def act(x):
        parts = {"a": x, "v": x[1:3], "w": x.t()[0]}
        d = copied({name: parts[name] for name in order})
        d[order[0]].add_(10)
        d[order[1]].mul_(2)
        return d[order[0]]

    same(act, torch.arange(12.0).reshape(4, 3), devices)


def test_a_copy_shares_nothing_with_what_was_copied():
    x = torch.arange(4.0).to("spmdx")
    for copied in (copy.deepcopy, reloaded):
        copied([x, x[1:]])[1].fill_(9.0)
        assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_deep_copy_of_an_annotated_tensor_and_its_view_keeps_tie_and_annotation():
    x = on_device(torch.arange(8.0), 4)
    y, view = copy.deepcopy([x, x[2:4]])
    view.fill_(9.0)
    assert y.tolist() == [0.0, 1.0, 9.0, 9.0, 4.0, 5.0, 6.0, 7.0]
    assert isinstance(y, spmdx.ShardedTensor) and str(y.partition_spec) == str(x.partition_spec)


def test_a_saved_state_dict_needs_no_spmdx_to_be_read():
    model = torch.nn.Linear(3, 2).to("spmdx")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    assert b"spmdx._ties" not in file.getvalue()


def test_two_pickles_at_once_hold_what_each_has_met():
    x = torch.arange(4.0).to("spmdx")
    files = io.BytesIO(), io.BytesIO()
    picklers = [pickle.Pickler(file) for file in files]
    for pickler in picklers:
        pickler.dump([x[1:], x])
    for file in files:
        view, whole = pickle.loads(file.getvalue())
        view.fill_(5.0)
        assert whole.tolist() == [0.0, 5.0, 5.0, 5.0]


def test_a_shallow_copy_is_in_the_same_memory():
    def act(x):
        copy.copy(x).add_(1)
        return x

    same(act, torch.arange(3.0))


def test_saved_tensors_may_be_written_where_autograd_keeps_copies():
    def act(x):
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            x = x.requires_grad_()
            h = x * 2
            y = h * h
            h.add_(1)
            (y.sum() + h.sum()).backward()
        return x.grad

    same(act, torch.ones(3))


def test_loaded_shards_hold_no_old_bytes():
    x = on_device(torch.zeros(8), 2)
    spmdx.sync(wait=True)
    old = StorageWeakRef(x.local_shards[0].data.untyped_storage())
    assert not old.expired()
    x.load_local_shards_([torch.ones(4)] * 2)
    assert old.expired()
    assert x.tolist() == [1.0] * 8


@pytest.mark.parametrize("show", [torch.conj, lambda x: x.conj().imag, lambda x: x.t().conj()[1:]])
def test_a_pickle_holds_what_a_conjugate_view_shows(show):
    x = torch.arange(12).reshape(3, 4) * (1 + 2j)
    for plain, kept in ((show(x), show(x.to("spmdx"))), (show(x), show(x.to("spmdx")).detach())):
        assert torch.equal(pickle.loads(pickle.dumps(kept)).cpu(), plain)
        assert torch.equal(copy.deepcopy(kept).cpu(), plain)


def test_leaves_that_require_gradients_are_pickled_with_their_optimizer():
    x = torch.arange(4.0).to("spmdx").requires_grad_()
    optimizer = torch.optim.SGD([x], lr=0.1, momentum=0.9)
    x.square().sum().backward()
    optimizer.step()
    y, other = pickle.loads(pickle.dumps((x, optimizer)))
    assert y.requires_grad and y.is_leaf and other.param_groups[0]["params"][0] is y
    assert torch.equal(y.detach().cpu(), x.detach().cpu())
    for leaf, owner in ((x, optimizer), (y, other)):
        leaf.grad = None
        leaf.square().sum().backward()
        owner.step()
    assert torch.equal(y.detach().cpu(), x.detach().cpu())


def test_the_old_format_of_torch_save_is_refused():
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="old format of files holds no tensor of device 'spmdx'"):
        torch.save({"x": x.to("spmdx")}, io.BytesIO(), _use_new_zipfile_serialization=False)
    file = io.BytesIO()
    torch.save({"x": x}, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert torch.equal(torch.load(file)["x"], x)


def test_copy_of_a_host_tensor_asks_what_python_asks():
    class Registered(torch.Tensor):
        pass

    class Alone(torch.Tensor):
        def __reduce_ex__(self, protocol):
            return "alone"

    copyreg.pickle(Registered, lambda x: (str, ("registered",)))
    try:
        assert copy.copy(torch.ones(2).as_subclass(Registered)) == "registered"
    finally:
        del copyreg.dispatch_table[Registered]
    alone = torch.ones(2).as_subclass(Alone)
    assert copy.copy(alone) is alone


def test_a_pickle_within_a_pickle_parts_no_tie():
    class Inner:
        def __init__(self, held):
            self.held = held

        def __reduce__(self):
            return bytes, (pickle.dumps(self.held),)

    x = torch.arange(6.0).to("spmdx")
    first, inner, last = pickle.loads(pickle.dumps((x, Inner([x, x[1:]]), x[2:])))
    last.fill_(-1)
    assert first.cpu().tolist() == [0, 1, -1, -1, -1, -1]
    whole, part = pickle.loads(inner)
    part.fill_(7)
    assert whole.cpu().tolist() == [0, 7, 7, 7, 7, 7]


@pytest.mark.parametrize("strides", [(1, 1), (0, 1), (6, 2)])
def test_a_lone_part_with_holes_or_repeats_is_laid_out_alike_where_it_is_loaded(strides):
    for device in ("cpu", "spmdx"):
        x = torch.arange(12.0).to(device).as_strided((2, 3), strides, 1).detach()
        y = pickle.loads(pickle.dumps(copy.deepcopy(x)))
        assert y.stride() == strides and torch.equal(y.cpu(), x.cpu())
        if strides == (1, 1):
            y[0, 1] = 9.0
            assert y[1, 0].item() == 9.0


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


def test_shards_that_are_loaded_are_a_write_to_graphs():
    x = on_device(torch.arange(8.0), 2).requires_grad_()
    loss = (x * x).sum()
    with torch.no_grad():
        x.load_local_shards_([torch.ones(4)] * 2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def written_in_a_hook(x):
    """The gradient is a view of what backward computed; a hook writes what it has detached."""
    p, seen = x.requires_grad_(), []

    def hook(leaf):
        leaf.grad.detach().mul_(2)
        whole = leaf.grad.new_ones(leaf.numel())
        whole.view(leaf.shape).detach().add_(3)
        row = leaf.grad.t()
        row.detach().add_(1)
        seen.append(whole)

    p.register_post_accumulate_grad_hook(hook)
    (p.reshape(-1) * 3).sum().backward()
    p.t().mul(2).sum().backward()
    return torch.cat([p.grad.flatten(), *seen])


def kept_by_a_hook(x):
    """Somebody else sees what the gradient is a view of, and writes to it."""
    p, kept = x.requires_grad_(), []

    def hook(gradient):
        base = gradient * 2
        kept.append(base)
        return base.view(-1).view(p.shape)

    p.register_hook(hook)
    (p * 3).sum().backward()
    kept[0].mul_(5)
    return p.grad


def dropped_in_a_hook(x):
    """As an optimizer in backward does; views of what Python never saw come after."""
    p, seen = x.requires_grad_(), []

    def hook(leaf):
        a = leaf.detach() + leaf.grad
        leaf.grad = None
        product = torch.einsum("ij,kj->ki", a, a)
        product.detach().zero_()
        row = torch.matmul(a[0], a.t())
        row.detach().mul_(2)
        seen.extend([product.reshape(-1), row])

    p.register_post_accumulate_grad_hook(hook)
    for _ in range(2):
        (p.reshape(-1) * 3).sum().backward()
    return torch.cat(seen)


@pytest.mark.parametrize("devices", MESHES)
@pytest.mark.parametrize("rows", [4, 7])
@pytest.mark.parametrize("act", [written_in_a_hook, kept_by_a_hook, dropped_in_a_hook])
def test_gradients_share_memory_with_whom_they_do_in_eager(act, rows, devices):
    same(act, torch.arange(3.0 * rows).view(rows, 3), devices)


def test_set_refuses_what_lies_before_a_storage():
    x, storage = torch.ones(12).to("spmdx"), torch.ones(12).to("spmdx").untyped_storage()
    with pytest.raises(RuntimeError, match="invalid storage offset -1"):
        x.set_(storage, -1, (2, 2), (1, 2))
    assert x.shape == (12,)
