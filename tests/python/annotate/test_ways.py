# SPDX-License-Identifier: Apache-2.0
"""Ways to use a tensor or a module give what they give on the CPU, or the error that CUDA gives."""

import re
import warnings

import pytest
import spmdx
import torch
import ways_around
import ways_module
import ways_tensor
from hardware import ON_GPU
from ways_oracle import differs, facts, outcome
from ways_subject import Subject, line, lived, lost

if spmdx.runtime.global_runtime_device_count() < 4:
    spmdx.runtime.set_device_count(4)

PLACES = [(None, 8), (2, 8), (3, 8), (4, 5)]  # devices, None: not annotated; and rows
KINDS = ["tensor", "leaf", "parameter"]
TABLES = {**ways_tensor.TABLES, **ways_around.TABLES}
WAYS = {f"{table}.{name}": way for table, ways in TABLES.items() for name, way in ways.items()}

# What a CUDA tensor refuses, in its words.
NO_NUMPY = TypeError, "can't convert spmdx:0 device type tensor to numpy. Use Tensor.cpu()"
OTHER_DEVICE = RuntimeError, "Expected all tensors to be on the same device"
REFUSED = {
    "host.numpy": NO_NUMPY,
    "host.array": NO_NUMPY,
    "host.asarray": NO_NUMPY,
    "host.__array__": NO_NUMPY,
    "host.numpy_function": NO_NUMPY,
    "host.numpy_array_last": NO_NUMPY,
    "host.apply_": (TypeError, "apply_ is only implemented on CPU tensors"),
    "host.map_": (TypeError, "map_ is only implemented on CPU tensors"),
    "host.with_cpu": OTHER_DEVICE,
    "host.compare_to_cpu": (AssertionError, "'device' do not match: spmdx:0 != cpu"),
    "host.pin_memory": (RuntimeError, "not an accelerator"),
    "writes.add_cpu": OTHER_DEVICE,
    "autograd.grad_on_cpu": (
        RuntimeError,
        "device type 'cpu' to a tensor with device type 'spmdx'",
    ),
}

# What a CUDA tensor does and a tensor here cannot, and why.
NO_ADDRESS = "a tensor that is computed later, in pieces, has no address"
DENSE = "the device holds dense tensors of numbers"
UNABLE = {
    "host.dlpack": (RuntimeError, "data pointer", NO_ADDRESS),
    "host.numpy_dlpack": (RuntimeError, "data pointer", NO_ADDRESS),
    "host.dlpack_device": (ValueError, "Unknown device type spmdx", NO_ADDRESS),
    "host.from_dlpack": (ValueError, "Unknown device type spmdx", NO_ADDRESS),
    "host.to_sparse": (spmdx.ShardingError, "spmdx holds dense tensors", DENSE),
    "host.quantized": (spmdx.ShardingError, "cannot hold tensors of dtype QInt8", DENSE),
    "host.nested": (spmdx.ShardingError, "spmdx holds dense tensors", DENSE),
}

# What is another thing on the CPU itself: the way that is compared there, and why.
SAME_THERE = "on the CPU it is the tensor itself"
COMPARED = {
    "conversions.cpu": (lambda x: tuple(y.clone() for y in (x, x, x.t(), x[1:, 1:])), SAME_THERE),
    "conversions.to_cpu_tensor": (lambda x: (x.clone(), x.clone()), SAME_THERE),
    "conversions.cpu_and_back": (lambda x: (x.clone(), x.t().clone()), SAME_THERE),
    "host.is_cpu": (lambda x: False, "it is not"),
    "host.get_device": (lambda x: (0, 0), "the CPU has no index"),
    "host.type": (lambda x: ("torch.FloatTensor", "torch.FloatTensor", False), "another name"),
    "host.record_stream": (lambda x: None, "the CPU has no streams"),
}

# Their results lie on the CPU.
ON_CPU = {
    "conversions.cpu",
    "conversions.to_cpu_tensor",
    "conversions.cpu_dtype",
    "conversions.type_of_cpu",
    "conversions.like_on_cpu",
    "conversions.tensor_of_numbers",
    "copies.map_location",
    "copies.map_location_dict",
    "autograd.clip_none",
    "programs.batches_pinned",
}

# They give an annotated tensor another shape, or no memory.
ENDING = {
    "writes.t_",
    "writes.transpose_",
    "writes.unsqueeze_",
    "writes.as_strided_",
    "writes.resize_",
    "writes.resize_as_",
    "writes.set_nothing",
    "writes.set_storage",
    "writes.set_",
    "writes.data_of_shape",
    "storages.resize",
}


def made(kind, device, devices, rows):
    torch.manual_seed(0)
    x = torch.linspace(-1, 2, rows * 6).view(rows, 6).clone().to(device)
    if kind != "tensor":
        x = x.requires_grad_() if kind == "leaf" else torch.nn.Parameter(x)
    return x if devices is None else spmdx.mark_sharding(x, line(devices), ("a", None))


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="torch")
        warnings.filterwarnings("ignore", message=".*(TypedStorage|Converting a|torch.jit)")
        yield


@pytest.mark.parametrize("name", [n for n in WAYS if n not in REFUSED | UNABLE])
def test_a_way_to_use_a_tensor_gives_what_it_gives_on_the_cpu(name):
    if ON_GPU and name == "host.cuda":
        pytest.skip("PyTorch has a CUDA device of its own")
    way, compared = WAYS[name], COMPARED.get(name, (WAYS[name],))[0]
    here = "cpu" if name in ON_CPU else "spmdx"
    for kind in KINDS:
        for devices, rows in PLACES:
            x, y = made(kind, "spmdx", devices, rows), made(kind, "cpu", None, rows)
            got = [outcome(lambda x=x: way(x), here), facts(x, "spmdx")]
            wanted = [outcome(lambda y=y: compared(y), "cpu"), facts(y, "cpu")]
            assert not (wrong := differs(got, wanted)), f"{kind} on {devices}: {wrong}"
            if devices and name not in ENDING:
                assert spmdx.get_annotation(x).spec == ("a", None), f"{kind} on {devices}"


@pytest.mark.parametrize("name", REFUSED | UNABLE)
def test_a_way_that_the_device_refuses_says_so_and_leaves_the_tensor(name):
    kind_of_error, text = (REFUSED | UNABLE)[name][:2]
    for kind in KINDS:
        for devices, rows in PLACES:
            x, y = made(kind, "spmdx", devices, rows), made(kind, "cpu", None, rows)
            with pytest.raises(kind_of_error, match=re.escape(text)):
                WAYS[name](x)
            assert not differs(facts(x, "spmdx"), facts(y, "cpu"))


# ---- modules -------------------------------------------------------------------------------------

# They put another tensor there, of which nothing was said.
NEW_TENSORS = {
    "parameters.removed": {"up.bias"},
    "parameters.swap": {"up.bias"},
    "parameters.weight_norm": {"up.weight"},
    "parameters.old_weight_norm": {"up.weight"},
}
# Their results have tensors that PyTorch keeps on the CPU, whatever the device.
PARTLY_ON_CPU = {"copies.averaged", "copies.exponential", "looks.optimizer_state"}


@pytest.mark.parametrize("name", ways_module.WAYS)
def test_a_way_to_use_a_module_gives_what_it_gives_on_the_cpu(name):
    if ON_GPU and name == "moves.cuda":
        pytest.skip("PyTorch has a CUDA device of its own")
    way = ways_module.WAYS[name]
    device = name not in PARTLY_ON_CPU
    wanted = {rows: lived(Subject("cpu", rows=rows), way, device) for rows in (8, 5)}
    for devices, rows in PLACES:
        s = Subject("spmdx", devices, rows)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = lived(s, way, device)
        assert not [w for w in caught if "annotation" in str(w.message)]
        assert not (wrong := differs(got, wanted[rows])), f"on {devices}: {wrong}"
        assert devices is None or lost(s) == NEW_TENSORS.get(name, set())
