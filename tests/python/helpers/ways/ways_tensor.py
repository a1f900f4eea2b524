# SPDX-License-Identifier: Apache-2.0
"""Ways to read, convert, write and follow one tensor ``x``; each gives the same on every device."""

import copy
import io
import pickle
import weakref

import torch
from torch.utils import weak


def reloaded(thing, **how):
    """Saved and loaded as files are."""
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **how)


def like(x, *shape):
    """Numbers of another tensor beside ``x``."""
    count = torch.Size(shape).numel()
    return torch.linspace(-2, 3, count, dtype=x.dtype).view(shape).to(x.device)


# ---- what is known of it without its numbers -----------------------------------------------------

FACTS = {
    "shape": lambda x: (x.shape, x.size(), x.size(0), x.size(-1), x.ndim, x.dim(), x.ndimension()),
    "len": lambda x: (len(x), x.numel(), x.nelement(), torch.numel(x), x.t().__len__()),
    "dtype": lambda x: (x.dtype, x.itemsize, x.element_size(), x.nbytes),
    "stride": lambda x: (x.stride(), x.stride(0), x.t().stride(), x.storage_offset()),
    "offset": lambda x: (x[2:].storage_offset(), x[:, 1].stride(), x[1, 1:].storage_offset()),
    "layout": lambda x: (x.layout, x.is_sparse, x.is_sparse_csr, x.is_mkldnn, x.is_nested),
    "kinds": lambda x: (x.is_quantized, x.is_meta, x.is_cuda, x.is_mps, x.is_xla, x.is_vulkan),
    "numbers": lambda x: (x.is_floating_point(), x.is_complex(), x.is_signed(), x.is_inference()),
    "bits": lambda x: (x.is_conj(), x.is_neg(), torch.is_conj(x), x.resolve_conj() is x),
    "same_size": lambda x: (x.is_same_size(x * 2), x.is_same_size(x.t())),
    "contiguous": lambda x: (x.is_contiguous(), x.t().is_contiguous(), x[:, 1:].is_contiguous()),
    "dim_order": lambda x: (x.dim_order(), x.t().dim_order()),
    "autograd": lambda x: (x.is_leaf, x.requires_grad, x.grad_fn, x.grad, x.retains_grad),
    "output_nr": lambda x: (x.output_nr, x._backward_hooks, x._is_view(), x._base),
    "views": lambda x: (x.detach()[1:]._is_view(), x.detach()[1:]._base is not None),
    "version": lambda x: (x._version, x.detach().add_(1)._version, x._version),
    "memory": lambda x: (x.is_set_to(x.clone()), x.is_set_to(x.view_as(x)), x.is_set_to(x + 1)),
    "is_tensor": lambda x: (torch.is_tensor(x), torch.is_storage(x), torch.is_complex(x)),
    "instance": lambda x: (isinstance(x, torch.Tensor), isinstance(x, torch.nn.Parameter)),
    "hash": lambda x: (hash(x) == id(x), {x: 1}[x], x in {x}, len({x, x.detach()})),
    "attributes": lambda x: (hasattr(x, "foo"), setattr(x, "foo", 3), x.foo, vars(x)),
    "device": lambda x: (x.device, (x + 1).device, torch.zeros_like(x).device, x.data.device),
    "pinned": lambda x: (x.is_pinned(), x.untyped_storage().is_pinned()),
    "result_type": lambda x: (torch.result_type(x, 2.5), torch.result_type(x, x.long())),
    "finfo": lambda x: (torch.finfo(x.dtype).max, torch.can_cast(x.dtype, torch.float16)),
    "coalesced": lambda x: x.is_coalesced(),
    "distributed": lambda x: x.is_distributed(),
    "type_of_class": lambda x: (type(x.detach()), type(x.data), type(x + 1), type(x[0])),
}

# ---- its numbers in Python -----------------------------------------------------------------------

NUMBERS = {
    "tolist": lambda x: x.tolist(),
    "item": lambda x: (x[0, 0].item(), x.sum().item(), x[1:2, 1:2].item()),
    "item_of_many": lambda x: x.item(),
    "float": lambda x: (float(x[0, 1]), float(x.detach().sum())),
    "int": lambda x: (int(x[-1, -1]), int(x.long()[-1, 0])),
    "complex": lambda x: complex(x[0, 0]),
    "bool": lambda x: (bool(x[0, 0]), bool(x.sum() > 1e9), bool(x[:1, :1])),
    "bool_of_many": lambda x: bool(x),
    "if": lambda x: "yes" if x.max() > 1 else "no",
    "index": lambda x: (list(range(9))[x.long()[-1, -1]], range(int(x.max()))),
    "index_of_float": lambda x: [1, 2, 3][x[0, 0]],
    "is_nonzero": lambda x: (x[0, 0].is_nonzero(), (x[0, 0] * 0).is_nonzero()),
    "format": lambda x: (f"{x.detach().sum():.3f}", f"{x.long().sum():>5d}", f"{x[0, 0]!s}"),
    "percent": lambda x: ("%.2f" % x.detach()[0, 0], "%s" % (x.shape,)),  # noqa: UP031
    "iterate": lambda x: [row.sum() for row in x],
    "unpack": lambda x: (lambda first, *rest: (first, len(rest)))(*x),
    "enumerate": lambda x: [(i, r[0].item()) for i, r in enumerate(x)],
    "zip": lambda x: [a * b for a, b in zip(x, x.flip(0), strict=True)],
    "reversed": lambda x: list(reversed(x)),
    "iterate_a_number": lambda x: list(x[0, 0]),
    "in": lambda x: (x[0, 0].item() in x, 1e9 in x, x[0, 0] in x),
    "in_a_list": lambda x: [id(y) for y in [x]].index(id(x)),
    "python_sum": lambda x: sum(x),
    "python_max": lambda x: (max(x[:, 0]), min(x[0]), sorted(x[0].detach().tolist())),
    "sorted": lambda x: sorted(x[:, 0]),
    "any": lambda x: (any(x[0]), all(x[:, 1])),
    "round": lambda x: (abs(x), divmod(7, 2), x.round(decimals=1), -x, +x),
    "operators": lambda x: (2**x, 2 - x, 1 / (x + 9), x // 2, x % 3, 7 % (x + 9), 5 // (x + 9)),
    "matmul": lambda x: (x @ x.t(), x.mT, x.T, x.H, x.mH),
    "compare": lambda x: (x == x, x != 0, x < 1, 1 > x, x >= x.mean(), x == None),  # noqa: E711
    "compare_to_text": lambda x: (x == "a", x != "a"),
    "invert": lambda x: (~(x > 0), ~x.long(), x.long() << 1, x.long() & 3, 1 | x.long()),
    "equal": lambda x: (torch.equal(x, x.clone()), x.equal(x + 1), torch.allclose(x, x)),
    "assert_close": lambda x: torch.testing.assert_close(x.detach(), x.detach().clone()),
    "assert_close_no": lambda x: torch.testing.assert_close(x.detach(), x.detach() + 1),
    "real": lambda x: (x.real, x.cfloat().real, x.cfloat().imag),
    "imag_of_real": lambda x: x.imag,
    "size_of_numbers": lambda x: torch.zeros(x.long().abs().max() + 1, 2).shape,
    "numpy_of_a_copy": lambda x: x.detach().cpu().numpy().tolist(),
    "numpy_forced": lambda x: x.numpy(force=True).tolist(),
    "repr": lambda x: (repr(x.detach()), str(x.data), repr([x.detach()]), f"{x[0]}"),
}

# ---- other types, layouts and devices ------------------------------------------------------------

DTYPES = "double float half bfloat16 long int short char byte bool cfloat cdouble chalf".split()
CONVERSIONS = {name: (lambda x, name=name: getattr(x, name)()) for name in DTYPES}
CONVERSIONS |= {
    "to_dtype": lambda x: x.to(torch.float64),
    "to_dtype_copy": lambda x: (x.to(x.dtype) is x, x.to(x.dtype, copy=True) is x),
    "to_device": lambda x: (x.to(x.device) is x, x.to(device=x.device, copy=True)),
    "to_text": lambda x: x.to(str(x.device)) is x,
    "to_both": lambda x: x.to(x.device, torch.float16, non_blocking=True),
    "to_other": lambda x: (x.to(x.double()), x.type_as(x.long())),
    "to_cpu_tensor": lambda x: (x.to(torch.ones(1)), x.type_as(torch.ones(1))),
    "cpu": lambda x: (x.cpu(), x.to("cpu"), x.t().cpu(), x[1:, 1:].cpu()),
    "cpu_and_back": lambda x: (x.cpu().to(x.device), x.t().cpu().to(x.device)),
    "cpu_dtype": lambda x: x.to("cpu", torch.float64),
    "meta": lambda x: (x.to("meta").shape, x.to("meta").device, x.t().to("meta").stride()),
    "same_objects": lambda x: (x.float() is x, x.contiguous() is x, x.detach() is x),
    "type_dtype": lambda x: (x.type(torch.float64), x.type(x.dtype) is x),
    "type_of_cpu": lambda x: x.type("torch.DoubleTensor"),
    "contiguous": lambda x: (x.t().contiguous(), x[:, ::2].contiguous(), x.expand(2, -1, -1)),
    "preserve": lambda x: (x.t().clone(), x.t().double(), x[:, ::2].clone(), x.t() + 1),
    "channels_last": lambda x: (
        x.repeat(2, 3, 1, 1).to(memory_format=torch.channels_last),
        x.repeat(2, 3, 1, 1).contiguous(memory_format=torch.channels_last).is_contiguous(),
        x.repeat(2, 3, 1, 1).clone(memory_format=torch.channels_last),
        x.repeat(2, 3, 1, 1).is_contiguous(memory_format=torch.channels_last),
    ),
    "channels_last_of_a_matrix": lambda x: x.contiguous(memory_format=torch.channels_last),
    "view_dtype": lambda x: (x.view(torch.int32), x.view(torch.int16), x.view(torch.int64)),
    "view_dtype_odd": lambda x: x[:, :3].view(torch.int64),
    "view": lambda x: (x.view(-1), x.view(3, 2, -1), x.view_as(x), x.reshape(2, -1)),
    "view_not": lambda x: x.t().view(-1),
    "shapes": lambda x: (x.unsqueeze(0), x[None, :, None], x.squeeze(), x.flatten(), x.ravel()),
    "views": lambda x: (x.movedim(0, 1), x.unfold(0, 2, 1), x.diagonal(), x.narrow(0, 1, 2)),
    "splits": lambda x: (x.chunk(2), x.split(2), x.tensor_split(3, 1), x.unbind(1), x.hsplit(2)),
    "expand": lambda x: (x[:1].expand(3, -1), x.broadcast_to(2, *x.shape), x.expand_as(x)),
    "new": lambda x: (x.new_zeros(2, 3), x.new_ones(2, dtype=torch.long), x.new_full((2,), 3.5)),
    "new_tensor": lambda x: (x.new_tensor([1, 2]), x.new_tensor(2.0, requires_grad=True)),
    "new_empty": lambda x: (x.new_empty(2, 3).shape, x.new_empty_strided((2, 3), (1, 2)).stride()),
    "new_old": lambda x: (x.new(2, 3).shape, x.new([1.0, 2.0]), x.new().shape),
    "likes": lambda x: (torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2)),
    "likes_of_views": lambda x: (torch.empty_like(x.t()).stride(), torch.zeros_like(x[:, ::2])),
    "like_on_cpu": lambda x: torch.zeros_like(x, device="cpu"),
    "random_likes": lambda x: (torch.rand_like(x).shape, torch.randint_like(x, 9).stride()),
    "tensor_of_numbers": lambda x: torch.tensor([x[0, 0], x[0, 1]]),
    "as_tensor": lambda x: (torch.as_tensor(x) is x, torch.as_tensor(x, dtype=torch.float64)),
    "asarray": lambda x: (torch.asarray(x), torch.asarray(x, copy=True)),
    "tensor_of_tensor": lambda x: torch.tensor(x),
    "Tensor": lambda x: torch.Tensor(x.detach()),
    "from_list": lambda x: torch.tensor(x.tolist(), device=x.device, dtype=torch.float16),
    "complex_view": lambda x: (
        torch.view_as_complex(x.view(-1, 2)),
        torch.view_as_real(x.cfloat()),
    ),
    "stack": lambda x: (
        torch.stack([x, x]),
        torch.cat([x, x.t().contiguous().t()]),
        x.repeat(2, 1),
    ),
    "index": lambda x: (x[0], x[-1, 1], x[1:3, ::2], x[..., 0], x[None], x[True], x[False].shape),
    "index_lists": lambda x: (x[[0, 2]], x[[0, 1], [1, 2]], x[:, [0, -1]], x[(1, 2)]),
    "index_tensors": lambda x: (x[x > 0.5], x[(x > 0).any(1)], x[torch.tensor([0, 1])]),
    "index_of_device": lambda x: x[torch.tensor([1, 0]).to(x.device)],
    "index_of_number": lambda x: (x[x.long()[-1, -1]], x[torch.tensor(1), 1:]),
    "index_outside": lambda x: x[99],
    "index_too_many": lambda x: x[0, 0, 0],
    "index_float": lambda x: x[1.5],
    "index_text": lambda x: x["a"],
    "index_step": lambda x: x[::-1],
    "reshape_not": lambda x: x.reshape(7, 7),
    "pytree": lambda x: torch.utils._pytree.tree_map(lambda t: t * 2, {"a": [x], "b": (x,)}),
}

# ---- written in place ----------------------------------------------------------------------------


def written(write):
    """What is left in ``x``, a leaf or not, and in a view of it from before."""

    def way(x):
        with torch.no_grad():
            view = x.detach()[:2]
            made = write(x)
        return x, view, made if made is not x else "itself"

    return way


WRITES = {
    "setitem": written(lambda x: x.__setitem__(0, 5.0)),
    "setitem_slice": written(lambda x: x.__setitem__((slice(1, 3), 0), like(x, 2))),
    "setitem_cpu": written(lambda x: x.__setitem__((0, slice(None)), torch.ones(6))),
    "setitem_number": written(lambda x: x.__setitem__((0, 0), torch.tensor(7))),
    "setitem_mask": written(lambda x: x.__setitem__(x > 0, 0.0)),
    "setitem_mask_of_numbers": written(lambda x: x.__setitem__(x > 1.9, torch.tensor(3.0))),
    "setitem_lists": written(lambda x: x.__setitem__(([0, 1], [1, 2]), 9)),
    "setitem_bool": written(lambda x: x.__setitem__(True, 1.5)),
    "setitem_row": written(lambda x: x.__setitem__(1, [1, 2, 3, 4, 5, 6])),
    "delitem": written(lambda x: x.__delitem__(0)),
    "augmented": written(lambda x: x.__iadd__(1).__imul__(2).__isub__(x.mean())),
    "augmented_row": written(lambda x: x[0].__iadd__(1).shape),
    "copy_": written(lambda x: x.copy_(x.flip(0))),
    "copy_from_cpu": written(lambda x: x.copy_(torch.ones(x.shape, dtype=torch.float64))),
    "copy_broadcast": written(lambda x: x.copy_(torch.arange(6))),
    "copy_to_cpu": written(lambda x: torch.zeros(6, len(x)).t().copy_(x).tolist()),
    "fill_": written(lambda x: x.fill_(like(x, 3)[1])),
    "zero_": written(lambda x: x.zero_()),
    "clamp_": written(lambda x: x.clamp_(0, 1).sqrt_()),
    "mul_number": written(lambda x: x.mul_(torch.tensor(2.0))),
    "add_cpu": written(lambda x: x + torch.ones(6)),
    "t_": written(lambda x: x.t_().shape),
    "unsqueeze_": written(lambda x: x.unsqueeze_(0).shape),
    "transpose_": written(lambda x: x.transpose_(0, 1).stride()),
    "as_strided_": written(lambda x: x.as_strided_((2, 2), (1, 2), 1).shape),
    "resize_": written(lambda x: x.resize_(2, 3).shape),
    "resize_as_": written(lambda x: x.resize_as_(like(x, 3, 4)).shape),
    "set_": written(lambda x: x.set_(like(x, 4, 2)).shape),
    "set_storage": written(lambda x: x.set_(like(x, 8).untyped_storage(), 1, (2, 2), (2, 1))),
    "set_nothing": written(lambda x: x.set_().shape),
    "data": written(lambda x: setattr(x, "data", x.data * 2)),
    "data_other": written(lambda x: setattr(x, "data", like(x, *x.shape))),
    "data_of_dtype": written(lambda x: setattr(x, "data", x.data.double())),
    "data_of_shape": written(lambda x: setattr(x, "data", like(x, 2, 3))),
    "data_written": written(lambda x: x.data.add_(1)),
    "swap": written(lambda x: torch.utils.swap_tensors(like(x, 3), like(x, 4))),
    "index_add_": written(lambda x: x.index_add_(0, torch.tensor([0, 0]).to(x.device), x[:2] * 2)),
    "masked_fill_": written(lambda x: x.masked_fill_(x > 0, -1)),
    "scatter_": written(lambda x: x.scatter_(1, (x > 0).long(), 7.0)),
    "put_": written(lambda x: x.put_(torch.tensor([1, 3]).to(x.device), like(x, 2))),
    "out": written(lambda x: torch.mul(x, 3, out=x)),
    "uniform_": written(lambda x: x.uniform_(3, 3).shape),
    "share_memory_": written(lambda x: x.share_memory_()),
    "module_load": written(lambda x: x.module_load(like(x, *x.shape)).shape),
}

# ---- copies, and what refers to it ---------------------------------------------------------------


def held_weakly(x):
    reference, keys = weakref.ref(x), weak.WeakTensorKeyDictionary()
    keys[x] = 1
    values = weakref.WeakValueDictionary(x=x)
    return reference() is x, keys[x], len(keys), values["x"] is x, weakref.getweakrefcount(x) > 0


def dies(x):
    y = x * 2
    reference = weakref.ref(y)
    del y
    return reference()


def saved_with_its_view(x):
    made = reloaded({"x": x, "again": x, "view": x.detach()[1:]}, weights_only=True)
    return made["x"] is made["again"], made["view"].fill_(0), made["x"]


COPIES = {
    "weak": held_weakly,
    "dies": dies,
    "save": lambda x: reloaded(x, weights_only=True),
    "save_ties": saved_with_its_view,
    "map_location": lambda x: reloaded(x, map_location="cpu"),
    "map_location_dict": lambda x: reloaded(x, map_location={str(x.device): "cpu"}),
    "map_location_here": lambda x: reloaded(x.detach().cpu(), map_location=x.device),
    "load_under_device": lambda x: under(torch.device("cpu"), lambda: reloaded(x)),
    "protocols": lambda x: [pickle.loads(pickle.dumps(x, protocol)) for protocol in (2, 3, 4, 5)],
    "deepcopy_of_grad": lambda x: copy.deepcopy(x * 1 if x.requires_grad else x),
    "deepcopy_memo": lambda x: (lambda a, b: a is b)(*copy.deepcopy([x, x])),
    "clone": lambda x: (x.clone(), torch.clone(x.t()), x.detach().clone()),
    "shallow": lambda x: (copy.copy(x) is x, copy.copy(x).detach().add_(1), x),
    "alias": lambda x: x.alias() if hasattr(x, "alias") else torch.ops.aten.alias(x),
    "as_subclass": lambda x: x.detach().as_subclass(torch.Tensor),
    "swapped": lambda x: (lambda a: (torch.utils.swap_tensors(a[0], a[1]), a))(
        [like(x, 3), like(x, 2, 2)]
    ),
}


def under(context, act):
    with context:
        return act()


TABLES = {
    "facts": FACTS,
    "numbers": NUMBERS,
    "conversions": CONVERSIONS,
    "writes": WRITES,
    "copies": COPIES,
}
