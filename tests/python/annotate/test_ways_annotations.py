# SPDX-License-Identifier: Apache-2.0
"""Where annotations end, what one device means, and what cannot go to another process."""

import copy
import pickle
import warnings
from multiprocessing.reduction import ForkingPickler

import pytest
import spmdx
import torch
from torch import nn
from ways_module import loaded, on_cpu, swapping
from ways_subject import Subject, line, lost, tensors

if spmdx.runtime.global_runtime_device_count() < 4:
    spmdx.runtime.set_device_count(4)

# They leave the device, or get another shape.
LEAVES = {
    "cpu": lambda s: s.net.cpu(),
    "to_cpu": lambda s: s.net.to("cpu"),
    "to_cpu_tensor": lambda s: s.net.to(torch.ones(1)),
    "to_meta": lambda s: s.net.to("meta"),
    "to_empty_cpu": lambda s: s.net.to_empty(device="cpu"),
    "to_empty_meta": lambda s: s.net.to_empty(device="meta"),
    "_apply": lambda s: s.net._apply(lambda t: t.cpu()),
    "type": lambda s: s.net.type("torch.DoubleTensor"),
    "part": lambda s: s.net.up.cpu(),
    "assign": lambda s: s.net.load_state_dict(on_cpu(s), assign=True),
    "assign_part": lambda s: s.net.load_state_dict({"scale": on_cpu(s)["scale"]}, False, True),
    "swapped": lambda s: swapping(lambda: s.net.cpu()),
    "swapped_by_assign": lambda s: swapping(lambda: s.net.load_state_dict(on_cpu(s), assign=True)),
    "data_of_rank": lambda s: setattr(s.net.scale, "data", s.x),
    "set_of_rank": lambda s: s.net.scale.set_(s.x),
}


def warned(act):
    """What is said of annotations meanwhile."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        act()
    return [str(w.message) for w in caught if "annotation" in str(w.message)]


@pytest.mark.parametrize("name", LEAVES)
def test_annotations_that_end_say_so_once_at_the_users_line(name):
    way, s, plain = LEAVES[name], Subject("spmdx", 4), Subject("cpu")
    said = warned(lambda: way(s))
    at = f"test_ways_annotations.py:{way.__code__.co_firstlineno}: the annotation "
    assert len(said) == 1 and said[0].startswith(at), said
    assert lost(s)
    way(plain)
    for n, t in tensors(s.net).items():
        assert t.device.type == "spmdx" or type(t) in (torch.Tensor, nn.Parameter)
        if t.device.type != "meta" and not name.startswith("to_empty"):
            wanted = tensors(plain.net)[n].detach().double()
            assert torch.allclose(t.detach().cpu().double(), wanted, atol=1e-5)


@pytest.mark.parametrize("move", ["cpu", "double_cpu", "data"])
def test_the_warning_is_the_users_lines_to_pythons_filters(move):
    s = Subject("spmdx", 4)
    ways = {
        "cpu": lambda: s.net.cpu(),
        "double_cpu": lambda: s.net.to("cpu", torch.float64),
        "data": lambda: setattr(s.net.scale, "data", s.x),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", "test_ways.*annotation", module=__name__)
        for _ in range(2):
            ways[move]()
            s = Subject("spmdx", 4)
    at = [(w.filename, w.lineno) for w in caught]
    assert at == [(__file__, ways[move].__code__.co_firstlineno)]


# On an annotated buffer of one dim, or a weight of two.
IN_PLACE = {
    "resize_": lambda s: s.net.scale.resize_(2, 2),
    "unsqueeze_": lambda s: s.net.scale.unsqueeze_(0),
    "t_": lambda s: torch.no_grad()(lambda: s.net.up.weight.t_())(),
    "transpose_": lambda s: torch.no_grad()(lambda: s.net.up.weight.transpose_(0, 1))(),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_annotation_that_a_new_shape_ends_says_so(name):
    s = Subject("spmdx", 4)
    assert len(warned(lambda: IN_PLACE[name](s))) == 1 and lost(s)


def test_a_storage_that_grows_says_that_it_ends_the_annotation():
    s = Subject("spmdx", 4)
    before = s.net.scale.tolist()
    (said,) = warned(lambda: s.net.scale.untyped_storage().resize_(400))
    assert "the storage of the tensor grew" in said and lost(s)
    assert s.net.scale.shape == (8,) and s.net.scale.tolist() == before


def test_a_storage_that_is_emptied_and_filled_again_keeps_the_annotation():
    x = spmdx.mark_sharding(torch.arange(8.0).to("spmdx"), line(4), ("a",))
    size = x.untyped_storage().nbytes()
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(size)
    x.fill_(2.0)
    assert spmdx.get_annotation(x).spec == ("a",) and x.tolist() == [2.0] * 8


def test_values_and_annotations_of_moved_parameters_go_with_the_optimizer():
    s, plain = Subject("spmdx", 4), Subject("cpu")
    weight = s.net.up.weight
    for each in (s, plain):
        each.net.to(torch.bfloat16).float()
        each.train()
    assert s.net.up.weight is weight and not lost(s)
    assert spmdx.get_sharding(s.optimizer.state[weight]["momentum_buffer"]).spec == ("a", None)
    assert torch.allclose(weight.detach().cpu(), plain.net.up.weight.detach(), atol=1e-4)


KEPT = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "save": lambda x: loaded(x, weights_only=True),
    "parameter": nn.Parameter,
    "shallow": copy.copy,
    "detach": lambda x: nn.Parameter(x.detach()),
}


@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("way", KEPT)
@pytest.mark.parametrize("rows", [8, 5])
def test_copies_of_copies_keep_annotations(way, devices, rows):
    x = nn.Parameter(torch.arange(rows * 2.0).view(rows, 2).to("spmdx"))
    spmdx.mark_sharding(x, line(devices), ("a", None))
    y = KEPT[way](KEPT[way](x))
    assert spmdx.get_annotation(y).spec == ("a", None) and isinstance(y, nn.Parameter)
    assert torch.equal(y.detach().cpu(), x.detach().cpu())
    assert y.local_shards[0].data.shape == x.local_shards[0].data.shape


# ---- one device ----------------------------------------------------------------------------------

SECOND = {
    "zeros": lambda x: torch.zeros(2, device="spmdx:1"),
    "tensor": lambda x: torch.tensor([1.0], device=torch.device("spmdx", 1)),
    "to": lambda x: x.to("spmdx:1"),
    "cpu_to": lambda x: x.cpu().to("spmdx:7"),
    "spmdx": lambda x: x.spmdx(1),
    "new_zeros": lambda x: x.new_zeros(2, device="spmdx:1"),
    "zeros_like": lambda x: torch.zeros_like(x, device="spmdx:1"),
    "rand": lambda x: torch.rand(2, device="spmdx:1"),
    "module": lambda x: nn.Linear(2, 2).to("spmdx:1"),
    "made_there": lambda x: nn.Linear(2, 2, device="spmdx:1"),
    "load": lambda x: loaded(x, map_location="spmdx:1"),
}


@pytest.mark.parametrize("name", SECOND)
def test_a_second_device_is_refused(name):
    said = "there is one logical spmdx device, spmdx:0, not spmdx|device_count\\(\\) is 1"
    with pytest.raises(RuntimeError, match=said):
        SECOND[name](torch.ones(2).to("spmdx"))


def test_a_worker_that_uses_the_device_says_so():
    rows = torch.arange(8.0).to("spmdx") + 1
    assert rows.tolist()[0] == 1.0
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), 2, num_workers=1)
    with pytest.raises(RuntimeError, match="forked after its first step.*Keep on the CPU"):
        list(loader)


def test_events_tell_times_and_the_module_tells_memory():
    events = [torch.spmdx.Event(enable_timing=True) for _ in range(2)]
    with pytest.raises(RuntimeError, match="have to be recorded"):
        events[0].elapsed_time(events[1])
    for event in events:
        event.record()
    assert events[0].elapsed_time(events[1]) >= 0
    free, total = torch.spmdx.mem_get_info()
    assert 0 < free <= total


def test_a_load_that_fails_does_not_say_where_pickles_go():
    x = torch.ones(2).to("spmdx")
    with pytest.raises(RuntimeError):
        loaded(x, map_location="spmdx:1")
    assert pickle.loads(pickle.dumps(x)).device == x.device


@pytest.mark.parametrize("device", [1, "spmdx:1", torch.device("spmdx", 3)])
def test_a_second_device_is_not_chosen(device):
    for choose in (torch.spmdx.set_device, torch.spmdx.device):
        with pytest.raises(RuntimeError, match="there is one logical spmdx device, spmdx:0, not"):
            choose(device)


@pytest.mark.parametrize("device", [0, None, "spmdx", "spmdx:0", torch.device("spmdx")])
def test_the_one_device_is_chosen(device):
    torch.spmdx.set_device(device)
    with torch.spmdx.device(device):
        assert torch.spmdx.current_device() == 0


def test_the_stream_is_one_of_pytorch():
    stream = torch.spmdx.Stream(priority=-1)
    assert isinstance(stream, torch.Stream) and stream == torch.spmdx.current_stream()
    assert stream.device == torch.device("spmdx", 0)
    torch.ones(2).to("spmdx").record_stream(stream)


# ---- other processes -----------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("kind", [torch.Tensor, nn.Parameter])
def test_tensors_are_not_sent_to_another_process_as_copies(kind, marked):
    x = kind(torch.ones(4).to("spmdx"))
    if marked:
        spmdx.mark_sharding(x, line(4), ("a",))
    for sent in (x, [x], nn.ParameterList([x])):
        with pytest.raises(RuntimeError, match="'spmdx:0' cannot be sent to another process"):
            ForkingPickler.dumps(sent)
    assert torch.equal(pickle.loads(ForkingPickler.dumps(x.detach().cpu())), torch.ones(4))
