# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of annotated tensors are what PyTorch makes of tensors of their class."""

import copy
import io
import os
import pickle
import subprocess
import sys
import warnings

import pytest
import spmdx
import torch
from spmdx._annotate.tensor import plain_class

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


class OfUser(torch.Tensor):
    def hello(self):
        return "hello"


class WithSlots(torch.Tensor):
    __slots__ = ("held",)


class Weight(torch.nn.Parameter):
    def hello(self):
        return "hello"


class Copied(torch.Tensor):
    """Says itself what its copies are."""

    def __deepcopy__(self, memo):
        made = self.detach().clone().as_subclass(Copied)
        made.how = "deepcopy"
        return made

    def __copy__(self):
        made = self.detach().as_subclass(Copied)
        made.how = "copy"
        return made


class Stated(torch.Tensor):
    """Says itself what its state is."""

    def __getstate__(self):
        return {"from": "state"}

    def __setstate__(self, state):
        self.how = state["from"]


class Reduced(torch.nn.Parameter):
    def __reduce_ex__(self, protocol):
        return Reduced, (self.data, self.requires_grad)


CLASSES = [torch.Tensor, torch.nn.Parameter, OfUser, WithSlots, Weight, Copied, Stated, Reduced]


def saved(x, **options):
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, weights_only=False, **options)


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "save": saved,
}


def made(kind, device, devices=None):
    x = torch.arange(24.0).reshape(8, 3).to(device)
    x = kind(x) if issubclass(kind, torch.nn.Parameter) else x.as_subclass(kind)
    x.note = ["kept"]
    if kind is WithSlots:
        x.held = ["too"]
    if devices:
        spmdx.mark_sharding(x, spmdx.Mesh(range(devices), (devices,), ("a",)), ("a", None))
    return x


def facts(act):
    """What of a copy a program can tell, or the error in its place."""
    try:
        y = act()
    except Exception as error:
        return type(error)
    kind = plain_class(type(y))
    attributes = {name: getattr(y, name, None) for name in ("note", "held", "how")}
    return kind, attributes, y.requires_grad, y.is_leaf, y.detach().cpu().tolist()


def is_known(kind, way, found, wanted):
    """Attributes of parameters: a deep copy of an annotated one keeps them, PyTorch does not."""
    return way == "deepcopy" and issubclass(kind, torch.nn.Parameter) and found[0] is wanted[0]


@pytest.mark.parametrize("devices", [None, 2, 3, 4, 8])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CLASSES)
def test_a_copy_is_what_pytorch_makes_of_the_class(kind, way, devices):
    x = made(kind, "spmdx", devices)
    found, wanted = facts(lambda: WAYS[way](x)), facts(lambda: WAYS[way](made(kind, "cpu")))
    assert found == wanted or is_known(kind, way, found, wanted), (found, wanted)
    if isinstance(found, type):
        return
    y = WAYS[way](x)
    assert spmdx.get_annotation(y) == spmdx.get_annotation(x) and y is not x
    if devices and kind is not Stated:  # whose own code takes what a pickle says
        assert isinstance(y, spmdx.ShardedTensor)
    if found[0] is OfUser or found[0] is Weight:
        assert y.hello() == "hello"


@pytest.mark.parametrize("way", WAYS)
def test_copies_of_a_state_dict_keep_the_annotations(way):
    mesh = spmdx.Mesh(range(4), (4,), ("a",))
    layer = torch.nn.Linear(3, 8).to("spmdx")
    spmdx.mark_sharding(layer.weight, mesh, ("a", None))
    state = WAYS[way](layer.state_dict())
    assert spmdx.get_annotation(state["weight"]).spec == ("a", None)
    assert spmdx.get_annotation(state["bias"]) is None
    assert all(torch.equal(value.cpu(), layer.state_dict()[n].cpu()) for n, value in state.items())
    fresh = torch.nn.Linear(3, 8, device="spmdx")
    fresh.load_state_dict(state, assign=True)
    assert fresh.weight.partition_spec == ("a", None)


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
@pytest.mark.parametrize("kind", [torch.Tensor, OfUser])
def test_a_copy_of_an_annotated_tensor_and_its_view_stay_tied(kind, way):
    x = made(kind, "spmdx", 4)
    parts = [x, x.detach()[2:4], x]
    if kind is OfUser and way == "deepcopy":
        pytest.skip("PyTorch copies no class without new_empty")
    for order in (parts, parts[::-1]):
        copied = WAYS[way](order)
        assert copied[0] is copied[2]
        whole, view = max(copied, key=len), min(copied, key=len)
        view.fill_(-1.0)
        assert whole.cpu()[2:4].eq(-1).all() and not whole.cpu()[:2].eq(-1).any()


def test_a_saved_annotated_model_needs_no_spmdx_to_be_read(tmp_path):
    layer = torch.nn.Linear(3, 8).to("spmdx")
    spmdx.mark_sharding(layer.weight, spmdx.Mesh(range(4), (4,), ("a",)), ("a", None))
    marked = made(torch.Tensor, "spmdx", 2)
    torch.save([layer.state_dict(), marked], tmp_path / "m")
    read = f"import torch; print(torch.load({str(tmp_path / 'm')!r}, map_location='cpu')[1].sum())"
    assert b"spmdx.tensor" not in (tmp_path / "m").read_bytes()
    said = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True)
    assert said.stdout == "tensor(276.)\n", said.stderr


def test_an_annotation_for_more_devices_ends_with_a_warning(tmp_path):
    torch.save({"x": made(torch.Tensor, "spmdx", 8)}, tmp_path / "x")
    read = (
        "import torch, spmdx\n"
        f"x = torch.load({str(tmp_path / 'x')!r})['x']\n"
        "print(type(x), spmdx.get_annotation(x), x.sum().item())\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", read],
        capture_output=True,
        text=True,
        env={**os.environ, "SPMDX_NUM_DEVICES": "2"},
    )
    assert said.stdout == "<class 'torch.Tensor'> None 276.0\n", said.stderr
    assert "the annotation of a tensor that was loaded ends: the mesh wants device 2" in said.stderr


@pytest.mark.parametrize("marked", [False, True])
def test_a_function_says_where_loaded_tensors_go(marked):
    x = made(torch.Tensor, "spmdx", 4 if marked else None)
    asked = []

    def here(storage, location):
        asked.append(location)
        return storage

    y = saved({"x": x, "host": torch.ones(2)}, map_location=here)
    assert y["x"].device.type == y["host"].device.type == "cpu"
    assert set(asked) == {"cpu", "spmdx:0"}
    assert y["x"].tolist() == x.tolist() and spmdx.get_annotation(y["x"]) is None
    y = saved({"x": x}, map_location=lambda storage, location: None)["x"]
    assert y.device.type == "spmdx" and y.tolist() == x.tolist()
    assert spmdx.get_annotation(y) == spmdx.get_annotation(x)


@pytest.mark.parametrize("show", [torch.conj, lambda z: z.conj().imag, lambda z: z.conj()[1:]])
def test_a_deep_copy_of_a_conjugate_view_is_apart_from_that_of_its_base(show):
    found = {}
    for device in ("cpu", "spmdx"):
        z = (torch.arange(1.0, 5.0) * (1 + 2j)).to(device)
        for order in (0, 1):
            copied = copy.deepcopy([z, show(z)] if order else [show(z), z])
            copied[not order].fill_(9)
            found[device, order] = [part.cpu().tolist() for part in copied]
    assert found["spmdx", 0] == found["cpu", 0] and found["spmdx", 1] == found["cpu", 1]


def test_copies_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for way in WAYS.values():
            way(made(torch.nn.Parameter, "spmdx", 4))
            way(made(torch.Tensor, "spmdx", 4))
