# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of several tensors keep what memory they share."""

import copy
import copyreg
import io
import pickle

import pytest
import spmdx
import torch
from shared_memory import MESHES, on_device, same


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
