# SPDX-License-Identifier: Apache-2.0
"""Facts of autograd, of traces, modes and profiles, and of loaders of data."""

import io

import torch
from import_facts import error, fact, model, numbers
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


@fact
def gradients():
    x = numbers(3).requires_grad_()
    y = x.exp().prod()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    return (
        first,
        torch.autograd.grad(first.sum(), x),
        torch.autograd.gradcheck(torch.sin, x.double()),
    )


@fact
def saved_tensors():
    seen = []

    def pack(tensor):
        seen.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        numbers(3).requires_grad_().exp().sum().backward()
    with torch.autograd.graph.save_on_cpu():
        numbers(3).requires_grad_().exp().sum().backward()
    return seen


@fact
def mutation_of_saved_tensors():
    x = numbers(3).requires_grad_()
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = x.clone()
        z = y.square()
        y.zero_()
        z.sum().backward()
    return x.grad


@fact
def functions_of_the_user():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            return 3 * gradient

    x = numbers(2).requires_grad_()
    Double.apply(x).sum().backward()
    return x.grad


@fact
def checkpointed():
    x, drop = numbers(8).requires_grad_(), nn.Dropout(0.5)
    for reentrant in (False, True):
        y = torch.utils.checkpoint.checkpoint(lambda t: drop(t).exp(), x, use_reentrant=reentrant)
        y.sum().backward()
    return x.grad, torch.utils.checkpoint.DefaultDeviceType.get_device_type()


@fact
def function_transforms():
    x = numbers(3)
    func = torch.func
    return (
        func.vmap(torch.dot)(numbers(2, 3), numbers(2, 3)),
        func.grad(lambda t: t.sin().sum())(x),
        func.jvp(torch.exp, (x,), (x,)),
        func.hessian(lambda t: t.pow(3).sum())(x),
        func.vjp(torch.exp, x)[1](x),
        func.vmap(lambda t: torch.rand_like(t), randomness="different")(numbers(2, 2)),
    )


@fact
def autocast():
    x = numbers(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = (x @ x).dtype, x.softmax(0).dtype, torch.is_autocast_enabled("cpu")
    with torch.autocast("cuda"):
        outside = (x @ x).dtype
    return inside, outside, error(torch.autocast, "npu")


@fact
def gradient_scalers():
    scaler, net = torch.amp.GradScaler("cpu", init_scale=4.0), model()
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler.scale(net(numbers(2, 4)).sum()).backward()
    scaler.unscale_(steps)
    scaler.step(steps)
    scaler.update()
    return scaler.state_dict(), net[0].weight, torch.amp.GradScaler().is_enabled()


@fact
def library_ops():
    library = torch.library.Library("facts", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")

    @torch.library.custom_op("facts::thrice", mutates_args=(), device_types="cpu")
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    return torch.ops.facts.twice(numbers(2)), thrice(numbers(2)), torch.ops.aten.add.overloads()


@fact
def subclasses_with_dispatch():
    class Logging(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen = []
    with Logging():
        F.linear(numbers(2, 4), numbers(3, 4)).softmax(-1)
    return seen


@fact
def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x = model()(mode.from_tensor(numbers(2, 4)))
        return x, torch.ones(2).device, error(x.tolist), error(lambda: torch.ones(2, device="cuda"))


@fact
def traced_for_jit():
    scripted = torch.jit.script(nn.Linear(2, 2))
    traced = torch.jit.trace(lambda t: t.sin() + 1, numbers(2))
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return scripted(numbers(1, 2)), traced.graph, torch.jit.load(file)(numbers(1, 2))


@fact
def symbolically_traced():
    return torch.fx.symbolic_trace(model()).graph, torch.fx.symbolic_trace(lambda t: t.sin()).code


@fact
def nested_and_quantized():
    nested = torch.nested.nested_tensor([numbers(2), numbers(3)], layout=torch.jagged)
    quantized = torch.quantize_per_tensor(numbers(3), 0.1, 0, torch.qint8)
    return (
        nested.to_padded_tensor(0),
        quantized,
        torch.masked.as_masked_tensor(numbers(2), numbers(2) > 0.2),
    )


@fact
def profiles():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        numbers(2, 2) @ numbers(2, 2)
    names = sorted({event.key for event in profile.key_averages()})
    return names, profile.use_device


@fact
def profiles_of_all_activities():
    with torch.profiler.profile() as profile:
        numbers(2, 2) @ numbers(2, 2)
    columns = profile.key_averages().table().splitlines()[1].split()
    return sorted(map(str, torch.profiler.supported_activities())), profile.use_device, columns


@fact
def loaders():
    loader = DataLoader(TensorDataset(numbers(6, 1)), batch_size=2, shuffle=True)
    return list(loader), list(loader)


@fact
def loaders_that_pin():
    loader = DataLoader(TensorDataset(numbers(4, 1)), batch_size=2, pin_memory=True)
    return [(batch, batch[0].is_pinned()) for batch in loader], error(iter(loader).__next__)


@fact
def loaders_with_forked_workers():
    loader = DataLoader(TensorDataset(numbers(4, 1)), 2, num_workers=2, pin_memory=True)
    return list(loader), list(loader)


@fact
def loaders_with_spawned_workers():
    loader = DataLoader(
        TensorDataset(numbers(4, 1)), 2, num_workers=1, multiprocessing_context="spawn"
    )
    return list(loader)
