# SPDX-License-Identifier: Apache-2.0
"""Ways to differentiate, store, hand out and compute with a tensor ``x``."""

import copy
import io
import json
import pprint

import numpy
import torch
from torch.utils import data

# ---- autograd ------------------------------------------------------------------------------------


def trained(act):
    """What ``act`` gives, and the gradient of ``x`` then."""

    def way(x):
        made = act(x)
        return made, x.grad, x.grad is None or x.grad.is_leaf

    return way


def hooked(x):
    seen = []
    handles = [x.register_hook(lambda g: seen.append(g.sum())), x.register_hook(lambda g: g * 2)]
    (x * x).sum().backward()
    handles[1].remove()
    (x * 3).sum().backward()
    return seen


def hooked_late(x):
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.sum())))
    (x * x).sum().backward()
    handle.remove()
    (x * x).sum().backward()
    return seen


def retained(x):
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.square().sum().backward()
    return y.grad, y.retains_grad, x.retains_grad, y.is_leaf


def detached_in_place(x):
    y = x * 2
    y.detach_()
    return y, y.grad_fn


def detached_view(x):
    y = (x * 2)[0].detach_()
    return y


def version_counted(x):
    y = x.detach().clone().requires_grad_()
    z = (y * y).exp()
    with torch.no_grad():
        y.add_(1)
    z.sum().backward()


def graph_twice(x):
    y = (x * x).sum()
    y.backward()
    y.backward()


def double_backward(x):
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    first.sum().backward()
    return first


def saved_by_hooks(x):
    packed = []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(x.device)):
        y = (x.exp() * x).sum()
    y.backward()
    return len(packed)


def inference(x):
    with torch.inference_mode():
        y = x * 2
    return y.is_inference(), y.requires_grad


def grad_set(x, grad):
    x.grad = grad
    return x.grad is grad


AUTOGRAD = {
    "backward": trained(lambda x: (x * x).sum().backward()),
    "backward_gradient": trained(lambda x: (x * x).backward(torch.ones_like(x))),
    "backward_of_many": trained(lambda x: (x * x).backward()),
    "backward_inputs": trained(lambda x: (x * x).sum().backward(inputs=[x])),
    "backward_twice": trained(lambda x: [(x * k).sum().backward() for k in (1, 2)]),
    "graph_twice": trained(graph_twice),
    "retain_graph": trained(lambda x: (x * x).sum().backward(retain_graph=True)),
    "grad": lambda x: torch.autograd.grad((x * x).sum(), x),
    "double_backward": trained(double_backward),
    "hooks": trained(hooked),
    "late_hooks": trained(hooked_late),
    "retain_grad": trained(retained),
    "detach_": detached_in_place,
    "detach_view": detached_view,
    "detach": lambda x: (x.detach(), x.detach().is_leaf, x.data.requires_grad),
    "version": version_counted,
    "requires_grad_": lambda x: (x.requires_grad_() is x, x.requires_grad_(False).requires_grad),
    "requires_grad_of_result": lambda x: setattr(x * 1, "requires_grad", False),
    "requires_grad_of_ints": lambda x: x.long().requires_grad_(),
    "grad_other_shape": lambda x: grad_set(x, torch.ones(3).to(x.device)),
    "grad_other_dtype": lambda x: grad_set(x, torch.ones(x.shape).double().to(x.device)),
    "grad_set": trained(lambda x: grad_set(x, torch.ones_like(x, requires_grad=False))),
    "grad_none": trained(lambda x: ((x * x).sum().backward(), grad_set(x, None))),
    "grad_on_cpu": lambda x: grad_set(x, torch.ones(x.shape)),
    "grad_in_place": trained(
        lambda x: ((x * x).sum().backward(), x.grad.mul_(2), x.grad.zero_())[1]
    ),
    "in_place_of_leaf": lambda x: x.add_(1).requires_grad,
    "view_in_place": lambda x: x[0].mul_(2).requires_grad,
    "saved_hooks": trained(saved_by_hooks),
    "save_on_cpu": trained(lambda x: under_save_on_cpu(x)),
    "inference": inference,
    "no_grad": lambda x: torch.no_grad()(lambda: (x * 2).requires_grad)(),
    "grad_fn": lambda x: (
        (type((x * 2).grad_fn).__name__, len((x * 2 + 1).grad_fn.next_functions))
        if x.requires_grad
        else None
    ),
    "jacobian": lambda x: torch.autograd.functional.jacobian(lambda t: t.sum(1), x.detach()),
    "func_grad": lambda x: torch.func.grad(lambda t: (t * t).sum())(x.detach()),
    "vmap": lambda x: torch.func.vmap(lambda row: row.sum() * row)(x.detach()),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x.detach(),), (torch.ones_like(x),)),
    "clip_norm": trained(
        lambda x: ((x * x).sum().backward(), torch.nn.utils.clip_grad_norm_([x], 0.5))[1]
    ),
    "clip_value": trained(
        lambda x: ((x * x).sum().backward(), torch.nn.utils.clip_grad_value_([x], 0.5))[1]
    ),
    "clip_none": lambda x: torch.nn.utils.clip_grad_norm_([x], 0.5),
    "total_norm": lambda x: torch.nn.utils.get_total_norm([x.detach(), x.detach()[0]]),
    "to_vector": lambda x: torch.nn.utils.parameters_to_vector([x, x[:2]]),
}


def under_save_on_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        y = (x.exp() * x).sum()
    y.backward()


# ---- storages ------------------------------------------------------------------------------------


def storage_read(x):
    bytes_, typed = x.untyped_storage(), x.storage()
    return bytes_.nbytes(), bytes_.size(), len(bytes_), bytes_[2], typed[1], typed.tolist()[:3]


def storage_again(x):
    made = torch.empty(0, dtype=x.dtype, device=x.device)
    return made.set_(x.untyped_storage(), 0, x.shape, x.stride()), made.is_set_to(x)


def storage_shared(x):
    return (
        x.untyped_storage()._cdata == x.detach()[1:].untyped_storage()._cdata,
        x.untyped_storage()._cdata == x.clone().untyped_storage()._cdata,
    )


STORAGES = {
    "read": storage_read,
    "device": lambda x: (x.untyped_storage().device, x.storage().device, x.storage().dtype),
    "facts": lambda x: (x.storage().size(), x.t().storage().size()),
    "again": storage_again,
    "shared": storage_shared,
    "of_views": lambda x: (x[1:].untyped_storage().nbytes(), x[:, 1].storage_offset()),
    "cpu": lambda x: x.untyped_storage().cpu().tolist(),
    "clone": lambda x: x.detach().untyped_storage().clone().tolist(),
    "tolist": lambda x: x.untyped_storage().tolist(),
    "fill": lambda x: (x.untyped_storage().fill_(0), x)[1],
    "setitem": lambda x: (x.untyped_storage().__setitem__(3, 64), x)[1],
    "typed_fill": lambda x: (x.storage().fill_(2.5), x)[1],
    "typed_setitem": lambda x: (x.storage().__setitem__(0, 2.5), x)[1],
    "copy": lambda x: (x.untyped_storage().copy_((x * 2).detach().untyped_storage()), x)[1],
    "copy_from_cpu": lambda x: (
        x.untyped_storage().copy_(torch.ones(x.shape).untyped_storage()),
        x,
    )[1],
    "copy_to_cpu": lambda x: torch.UntypedStorage(x.nbytes).copy_(x.untyped_storage()).tolist(),
    "typed_types": lambda x: (x.storage().double().tolist(), x.storage().float().size()),
    "typed_cpu": lambda x: x.storage().cpu().tolist(),
    "saved": lambda x: reloaded(x.untyped_storage()).tolist(),
    "deepcopy": lambda x: copy.deepcopy(x.detach().untyped_storage()).tolist(),
    "resize": lambda x: (x.untyped_storage().resize_(400), x.untyped_storage().nbytes(), x)[1:],
    "made": lambda x: torch.UntypedStorage(8, device=x.device).fill_(3).tolist(),
    "frombuffer": lambda x: torch.frombuffer(bytearray(8), dtype=torch.float32).to(x.device),
    "use_count": lambda x: torch._C._storage_Use_Count(x.untyped_storage()._cdata) > 0,
}


def reloaded(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


# ---- other libraries and the host ----------------------------------------------------------------

HOST = {
    "numpy": lambda x: x.detach().numpy().tolist(),
    "array": lambda x: numpy.array(x.detach()).tolist(),
    "asarray": lambda x: numpy.asarray(x.detach()).tolist(),
    "__array__": lambda x: x.detach().__array__().dtype,
    "numpy_needs_no_grad": lambda x: numpy.asarray(x.detach().cpu()).tolist(),
    "numpy_function": lambda x: numpy.sin(x.detach()),
    "numpy_number_first": lambda x: (numpy.float32(2) * x, numpy.float64(1) + x),
    "numpy_number_last": lambda x: (x * numpy.float32(2), x + numpy.int64(1)),
    "numpy_array_first": lambda x: numpy.ones(6, "f") * x.detach(),
    "numpy_array_last": lambda x: x * numpy.ones(6, "f"),
    "numpy_index": lambda x: (x[numpy.array([0, 2])], x[numpy.int64(1)]),
    "numpy_of_a_number": lambda x: float(numpy.float64(x.detach().sum())),
    "numpy_in_tensor": lambda x: torch.tensor(numpy.arange(3), device=x.device),
    "numpy_as_tensor": lambda x: torch.as_tensor(numpy.arange(3), device=x.device),
    "from_numpy": lambda x: torch.from_numpy(numpy.arange(3.0)).to(x.device),
    "copy_of_numpy": lambda x: x.detach().copy_(torch.from_numpy(numpy.ones(6))),
    "cuda_array_interface": lambda x: x.__cuda_array_interface__,
    "dlpack": lambda x: type(x.detach().__dlpack__()).__name__,
    "dlpack_device": lambda x: len(x.__dlpack_device__()),
    "from_dlpack": lambda x: torch.from_dlpack(x.detach()),
    "numpy_dlpack": lambda x: numpy.from_dlpack(x.detach()).tolist(),
    "json": lambda x: json.dumps(x.tolist()),
    "pprint": lambda x: pprint.pformat({"a": torch.ones_like(x).sum()}),
    "memoryview": lambda x: memoryview(x),
    "apply_": lambda x: x.detach().apply_(lambda v: v + 1),
    "map_": lambda x: x.detach().map_(x.detach(), lambda a, b: a + b),
    "pin_memory": lambda x: x.detach().pin_memory().is_pinned(),
    "pin_of_cpu": lambda x: torch.ones(2).pin_memory().to(x.device, non_blocking=True),
    "cuda": lambda x: x.cuda(),
    "data_ptr": lambda x: x.data_ptr() != 0,
    "storage_data_ptr": lambda x: x.untyped_storage().data_ptr() == x.data_ptr(),
    "is_shared": lambda x: (x.share_memory_() is x, x.is_shared()),
    "type": lambda x: (x.type(), torch.typename(x), isinstance(x, torch.FloatTensor)),
    "get_device": lambda x: (x.get_device(), torch.get_device(x)),
    "is_cpu": lambda x: x.is_cpu,
    "record_stream": lambda x: x.record_stream(torch.spmdx.current_stream()),
    "to_sparse": lambda x: x.detach().to_sparse().to_dense().cpu(),
    "quantized": lambda x: torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.qint8).dequantize(),
    "nested": lambda x: torch.nested.nested_tensor([x.detach(), x.detach()]).to_padded_tensor(0.0),
    "jagged": lambda x: torch.nested.nested_tensor(
        [x.detach(), x.detach()[1:]], layout=torch.jagged
    ).values(),
    "with_cpu": lambda x: x.detach() + torch.ones(6),
    "equal_to_cpu": lambda x: torch.equal(x.detach(), torch.ones(x.shape)),
    "compare_to_cpu": lambda x: torch.testing.assert_close(x.detach(), x.detach().cpu()),
}

# ---- data sets and programs of one tensor --------------------------------------------------------


def loaded_batches(x, **how):
    return list(data.DataLoader(data.TensorDataset(x.detach(), x.detach()[:, 0]), 3, **how))


def traced(x):
    made = torch.jit.trace(lambda t: t.sin() * 2, x.detach())
    return made(x.detach()), made(x.detach() + 1)


class Both(torch.nn.Module):
    def forward(self, t):
        return t.sin() * 2, t.t()


PROGRAMS = {
    "batches": loaded_batches,
    "batches_pinned": lambda x: loaded_batches(x.cpu(), pin_memory=True),
    "collate": lambda x: data.default_collate([{"a": x, "b": 1}, {"a": x, "b": 2}])["a"],
    "convert": lambda x: data.default_convert([x])[0] is x,
    "subset": lambda x: list(data.Subset(data.TensorDataset(x.detach()), [0, 3])),
    "random_split": lambda x: [
        len(s) for s in data.random_split(data.TensorDataset(x), [0.5, 0.5])
    ],
    "jit_trace": traced,
    "script": lambda x: torch.jit.script(torch.nn.Softsign())(x.detach()),
    "export": lambda x: torch.export.export(Both(), (x.detach(),)).module()(x.detach()),
    "fx": lambda x: torch.fx.symbolic_trace(Both())(x.detach()),
    "make_fx": lambda x: torch.fx.experimental.proxy_tensor.make_fx(lambda t: t * 2)(x.detach())(
        x.detach()
    ),
    "compile": lambda x: torch.compile(lambda t: t.sin() * 2, backend="eager")(x.detach()),
    "checkpoint": trained(
        lambda x: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum()
    ),
    "default_device": lambda x: under(x.device, lambda: (torch.ones(2), torch.arange(3))),
    "generator": lambda x: torch.Generator(x.device).device,
    "bernoulli": lambda x: torch.bernoulli(torch.ones(3).to(x.device)),
    "einsum": lambda x: (torch.einsum("ij,kj->ik", x, x), torch.tensordot(x, x.t(), 1)),
    "sort": lambda x: (x.sort(1, descending=True), x.topk(2), x.max(1), x.unique(), x.nonzero()),
    "split_sizes": lambda x: x.split([1, len(x) - 1]),
    "foreach": lambda x: torch._foreach_add([x.detach(), x.detach()[0]], 1),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij"),
    "pad_sequence": lambda x: torch.nn.utils.rnn.pad_sequence([x, x[1:]]),
    "set_rows": lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
}


def under(context, act):
    with context:
        return act()


TABLES = {"autograd": AUTOGRAD, "storages": STORAGES, "host": HOST, "programs": PROGRAMS}
