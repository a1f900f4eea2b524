# SPDX-License-Identifier: Apache-2.0
"""Facts of tensors, of their copies and of files."""

import copy
import hashlib
import io
import pickle
import weakref

import torch
from import_facts import error, fact, model, numbers
from torch import nn
from torch.nn import functional as F


def loaded(text: bytes, **kwargs) -> object:
    return torch.load(io.BytesIO(text), **kwargs)


def saved(value: object, **kwargs) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **kwargs)
    return file.getvalue()


@fact
def texts_of_tensors():
    tensors = numbers(2, 3), torch.ones(2, device="meta"), torch.ones(2) > 1, torch.tensor(1e9)
    sparse = torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()
    return tensors, sparse, nn.Parameter(numbers(2)), torch.ones(2, requires_grad=True).exp()


@fact
def text_of_a_large_tensor():
    return torch.randn(100, 100), f"{torch.tensor(1.25):.1f}", torch.tensor([1 + 2j, float("nan")])


@fact
def meta_tensors():
    x = torch.empty(4, 4, device="meta") @ torch.empty(4, 2, device="meta")
    return x, nn.Linear(2, 2, device="meta").to_empty(device="cpu").weight.shape, error(x.cpu)


@fact
def conversions():
    x = numbers(3)
    return x.to("cpu") is x, x.to(torch.float64), x.cpu() is x, x.type(torch.int32), x.bfloat16()


@fact
def aliases():
    x = numbers(4)
    return (
        x[1:].data_ptr() - x.data_ptr(),
        x.untyped_storage().nbytes(),
        x._version,
        x.add_(1)._version,
    )


@fact
def storages():
    storage = numbers(4).untyped_storage()
    before = storage.nbytes(), storage.resize_(32).nbytes()
    return before, copy.deepcopy(storage).nbytes(), torch.UntypedStorage(8).fill_(1).tolist()


@fact
def numpy_and_dlpack():
    x = numbers(3)
    return x.numpy(), torch.from_numpy(x.numpy()), torch.from_dlpack(x), x.__dlpack_device__()


@fact
def operators():
    x, y = numbers(3, 3), torch.eye(3)
    return x @ y, x.renorm(2, 0, 1), torch.linalg.svdvals(x), torch.fft.rfft(x).abs(), x.sort()[1]


@fact
def errors_of_operators():
    x = numbers(3)
    device = error(torch.zeros, 2, device="npu")
    return error(torch.mm, x, x), error(x.view, 2), device, error(getattr, x, "foo")


@fact
def convolution_and_attention():
    x = torch.randn(1, 2, 4, 4)
    return (
        F.conv2d(x, x),
        F.scaled_dot_product_attention(x, x, x, is_causal=True),
        F.max_pool2d(x, 2),
    )


@fact
def deep_copies():
    x = numbers(3)
    twins = copy.deepcopy([x, x[1:]])
    net = copy.deepcopy(model())
    leaf = torch.ones(2, requires_grad=True)
    return (
        twins[0].data_ptr() + 4 == twins[1].data_ptr(),
        net[0].weight,
        error(copy.deepcopy, leaf * 2),
    )


@fact
def shallow_copies():
    x, parameter = numbers(3), nn.Parameter(numbers(2))
    parameter.tag = 3
    twins = copy.copy(x), copy.copy(parameter)
    shared = twins[0].data_ptr() == x.data_ptr(), twins[1].data_ptr() == parameter.data_ptr()
    return twins, shared, type(twins[1]), twins[1].tag, error(copy.copy, parameter * 2)


@fact
def shallow_copies_of_subclasses():
    class Tagged(torch.Tensor):
        pass

    x = numbers(2).as_subclass(Tagged)
    x.tag = "here"
    return type(copy.copy(x)), copy.copy(x).tag, copy.copy(model())[0].weight.shape


@fact
def pickles():
    x = numbers(3)
    values = [
        x,
        x[1:],
        x > 1,
        nn.Parameter(x),
        x.to_sparse(),
        x.conj(),
        torch.Generator().get_state().sum(),
    ]
    return [pickle.loads(pickle.dumps(v)) for v in values], len(pickle.dumps(values))


@fact
def bytes_of_files():
    return hashlib.sha256(saved([numbers(3), nn.Parameter(numbers(3)), model()])).hexdigest()


@fact
def pickles_of_modules():
    net = pickle.loads(pickle.dumps(model().eval()))
    return net(numbers(1, 4)), [type(p).__name__ for p in net.parameters()]


@fact
def files():
    text = saved({"x": numbers(3), "net": model().state_dict()})
    return loaded(text, weights_only=True), loaded(text, map_location="meta")["x"], len(text)


@fact
def files_of_the_old_format():
    text = saved([numbers(3), numbers(3)[1:]], _use_new_zipfile_serialization=False)
    return loaded(text), len(text)


@fact
def files_from_elsewhere():
    text = saved(numbers(3))
    moved = loaded(text, map_location=lambda storage, place: storage), loaded(text, map_location={})
    return error(loaded, text, map_location="cuda"), moved


@fact
def files_of_untrusted_types():
    return error(loaded, saved(model()), weights_only=True)


@fact
def shared_memory():
    x = numbers(3).share_memory_()
    return x, x.is_shared(), model().share_memory()[0].weight.is_shared()


@fact
def weak_references():
    x = numbers(3)
    reference, kept = weakref.ref(x), weakref.WeakKeyDictionary()
    net = model()
    kept[net] = 1
    del x, net
    return reference(), len(kept)
