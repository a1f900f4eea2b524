# SPDX-License-Identifier: Apache-2.0
"""Texts of tensors on the device: those of plain PyTorch, with the device, and no step is run."""

import re

import pytest
import spmdx
import torch

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


class OfUser(torch.Tensor):
    pass


MADE = {
    "a number": lambda: torch.tensor(2.5),
    "a whole number": lambda: torch.tensor(3),
    "integers": lambda: torch.arange(7),
    "floats of many widths": lambda: torch.tensor([1e-8, 1.0, -3e5, float("inf"), float("nan")]),
    "doubles": lambda: torch.linspace(0, 1, 5, dtype=torch.float64),
    "halves": lambda: torch.arange(6.0).reshape(2, 3).half() / 7,
    "bfloat16": lambda: (torch.arange(6.0) / 7).bfloat16(),
    "float8": lambda: torch.arange(4.0).to(torch.float8_e4m3fn),
    "bytes": lambda: torch.arange(4).byte(),
    "truths": lambda: torch.tensor([[True, False], [False, True]]),
    "complex": lambda: torch.arange(4.0) * (1 + 2j),
    "conjugate": lambda: (torch.arange(4.0) * (1 + 2j)).conj(),
    "negative view": lambda: (torch.arange(4.0) * (1 + 2j)).conj().imag,
    "nothing": lambda: torch.empty(0),
    "nothing of a shape": lambda: torch.empty(2, 0, 3, dtype=torch.int32),
    "summarized": lambda: torch.arange(3000.0).reshape(30, 100),
    "summarized complex": lambda: torch.arange(2000.0) * 1j,
    "many dims": lambda: torch.arange(24.0).reshape(2, 3, 4),
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "a leaf": lambda: torch.ones(3).requires_grad_(),
    "computed": lambda: torch.ones(3).requires_grad_() * 2,
    "a parameter": lambda: torch.nn.Parameter(torch.ones(2, 2)),
    "of a class": lambda: torch.arange(3.0).as_subclass(OfUser),
    "nested": lambda: {"a": [torch.ones(2), (torch.zeros(1),)]},
    "a state dict": lambda: torch.nn.Linear(2, 2).state_dict(),
}
OPTIONS = [
    {},
    {"precision": 2},
    {"sci_mode": True},
    {"threshold": 5, "edgeitems": 1},
    {"linewidth": 30},
]


def there(value):
    """The same on the device; of tensors that autograd computed, computed there."""
    if isinstance(value, dict):
        return type(value)((key, there(held)) for key, held in value.items())
    if isinstance(value, list | tuple):
        return type(value)(map(there, value))
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach().to("spmdx"))
    if value.grad_fn is not None:
        return torch.ones(3).to("spmdx").requires_grad_() * 2
    return value.detach().to("spmdx").requires_grad_(value.requires_grad)


def without_device(text):
    """Lines of PyTorch may break elsewhere where they are longer."""
    return re.sub(r"\s+", " ", re.sub(r",\s+device='spmdx:0'", "", text))


@pytest.fixture(autouse=True)
def _options():
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", MADE)
def test_a_text_is_that_of_plain_pytorch_with_the_device(name, options):
    torch.set_printoptions(**options)
    torch.manual_seed(0)
    plain = MADE[name]()
    ours = there(plain)
    for text in (repr, str, "{}".format):
        assert without_device(text(ours)) == without_device(text(plain))
    assert "spmdx:0" in repr(ours)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("shape", [(), (0,), (8,), (5, 3), (40, 40)])
def test_the_text_of_an_annotated_tensor_has_its_sharding(shape, devices):
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    spec = (("data", None)[: len(shape)]) if shape else ()
    plain = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    for kind in (torch.Tensor, torch.nn.Parameter):
        x = plain.to("spmdx")
        x = torch.nn.Parameter(x) if kind is torch.nn.Parameter else x
        spmdx.mark_sharding(x, mesh, spec)
        head = "Parameter containing:\n" if kind is torch.nn.Parameter else ""
        tail = ", requires_grad=True" if kind is torch.nn.Parameter else ""
        inside = repr(plain).removeprefix("tensor(").removesuffix(")")
        wanted = f"{head}ShardedTensor({inside}{tail}, {x.sharding!r})"
        assert without_device(repr(x)) == without_device(wanted)
        assert "device='spmdx:0'" in repr(x)


@pytest.mark.parametrize("marked", [False, True])
def test_numbers_are_formatted_as_numbers(marked):
    x = torch.tensor(2.5).to("spmdx")
    if marked:
        spmdx.mark_sharding(x, spmdx.get_1d_mesh("data"), ())
    assert f"{x:.2f} {x}" == "2.50 2.5"
    for refused in (torch.nn.Parameter(x), x.reshape(1)):
        with pytest.raises(TypeError, match="unsupported format string"):
            f"{refused:.2f}"


@pytest.mark.parametrize("marked", [False, True])
def test_a_text_runs_no_step_once_the_data_are_there(marked):
    x = torch.arange(16.0).to("spmdx") * 3
    if marked:
        spmdx.mark_sharding(x, spmdx.get_1d_mesh("data"), ("data",))
    spmdx.sync(wait=True)
    before = spmdx.debug.counters()
    for text in (repr, str, "{}".format):
        text([x, {"x": x}])
    after = spmdx.debug.counters()
    for what in ("steps", "ops_recorded", "plans_compiled"):
        assert after[what] == before[what], what
