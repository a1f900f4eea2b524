# SPDX-License-Identifier: Apache-2.0
"""Facts of PyTorch's own names, of its ops, and of who is asked when they are called."""

import pickle

import torch
from import_facts import fact, lines


@fact
def names_of_torch():
    return lines(name for name in dir(torch) if not name.startswith("_"))


@fact
def names_of_tensor():
    return lines(dir(torch.Tensor))


@fact
def names_of_module():
    return lines(dir(torch.nn.Module))


@fact
def names_of_storage():
    return lines([*dir(torch.UntypedStorage), *dir(torch.TypedStorage)])


@fact
def names_of_packed_sequence():
    return lines(dir(torch.nn.utils.rnn.PackedSequence))


def name_of(function):
    """A name that is no address, of a function, a property or a method of C."""
    return getattr(function, "__name__", type(function).__name__)


@fact
def overridable_functions():
    found = torch.overrides.get_overridable_functions()
    return lines(f"{name_of(owner)}.{name_of(f)}" for owner, fs in found.items() for f in fs)


@fact
def methods_are_overridable():
    found = set(torch.overrides.get_overridable_functions()[torch.Tensor])
    names = ("add", "reshape", "cpu", "pin_memory", "resize_", "clone", "set_", "__deepcopy__")
    return [(name, getattr(torch.Tensor, name) in found) for name in names]


@fact
def testing_overrides():
    overrides = torch.overrides.get_testing_overrides()
    return lines(name_of(function) for function in overrides)


@fact
def ignored_functions():
    return lines(map(name_of, torch.overrides.get_ignored_functions()))


@fact
def names_resolve():
    resolve = torch.overrides.resolve_name
    return [resolve(f) for f in (torch.Tensor.add, torch.add, torch.Tensor.__deepcopy__)]


@fact
def function_modes_see_calls():
    seen = []

    class Seeing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(torch.overrides.resolve_name(function))
            return function(*args, **(kwargs or {}))

    with Seeing():
        x = torch.ones(2, requires_grad=True)
        (x.exp() + torch.zeros(2)).sum().backward()
        str(x)
    return seen


@fact
def safe_globals():
    return lines(map(name_of, torch.serialization.get_safe_globals()))


@fact
def ops_have_the_same_kernels():
    asked = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = ("CPU", "Meta", "AutogradCPU", "CompositeImplicitAutograd", "Autograd", "Python")
    ops = ("add.Tensor", "mm", "renorm", "convolution", "native_layer_norm", "embedding", "set_")
    return [(op, key, asked(f"aten::{op}", key)) for op in ops for key in keys]


@fact
def all_ops_for_the_cpu():
    return len(torch._C._dispatch_get_registrations_for_dispatch_key("CPU")), len(
        torch._C._dispatch_get_all_op_names()
    )


@fact
def decompositions():
    return len(torch._decomp.decomposition_table), len(torch._decomp.core_aten_decompositions())


@fact
def pickled_types():
    values = torch.device("cpu"), torch.float32, torch.Size([1]), torch.strided
    return [pickle.loads(pickle.dumps(value)) for value in values]
