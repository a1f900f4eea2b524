# SPDX-License-Identifier: Apache-2.0
"""Profiles of devices: figures and sources, what plans make of them, and files that are none."""

import copy
import math
import pickle
import tomllib
from pathlib import Path

import pytest
import spmdx
import torch
from spmdx import Hardware
from spmdx.hardware import hardware_names

PROFILES = Path(spmdx.__file__).parent / "_machine" / "profiles"
FIGURES = {
    "flops_per_second",
    "memory_bytes_per_second",
    "memory_bytes",
    "product_efficiency",
    "memory_efficiency",
    "launch_ns",
    "packing_bytes_per_second",
    "host_bytes_per_second",
}
MINE = Hardware("mine", {"f32": 2e12, "bf16": 8e12}, 1e12, launch_ns=700)


@pytest.fixture(autouse=True)
def as_before():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    yield
    spmdx.set_hardware(None, topology="in-process")
    spmdx.set_memory_limit(None)


def predicted_ns(dtype, side=512):
    """Of a step that multiplies two square matrices, on two devices that share the rows."""
    mesh = spmdx.Mesh(range(2), (2,), ("x",))
    a = spmdx.mark_sharding(torch.ones(side, side, dtype=dtype).to("spmdx"), mesh, ("x", None))
    b = torch.ones(side, side, dtype=dtype).to("spmdx")
    product = a @ b
    spmdx.mark_step()
    del product
    return spmdx.explain().step_ns


# --- profiles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", hardware_names())
def test_each_figure_of_a_profile_has_a_source(name):
    found = Hardware.named(name)
    told = tomllib.loads((PROFILES / f"{name}.toml").read_text())
    assert found.name == name == told["name"]
    expected = FIGURES & told.keys() - {key for key, value in told.items() if value == 0}
    assert expected | {"launch_ns"} == set(found.sources), name
    assert all(len(source) > 8 for source in found.sources.values())


def test_the_profiles_that_come_with_it():
    assert hardware_names() == [
        "a100-80",
        "ascend-910",
        "ascend-910b",
        "cpu",
        "gpu",
        "h100-80",
        "h200-141",
        "stratix-10",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "v100-32",
    ]


def test_topologies_join_devices_that_have_a_profile():
    for topology, hardware in [
        ("in-process", "cpu"),
        ("gloo", "cpu"),
        ("nvlink", "gpu"),
        ("infiniband", "gpu"),
    ]:
        assert spmdx.Topology.named(topology).hardware == Hardware.named(hardware)


# --- what is in use -------------------------------------------------------------------------------


def test_what_is_set_stays_when_the_links_change():
    assert spmdx.get_hardware() == Hardware.named("cpu")
    spmdx.set_topology("nvlink")
    assert spmdx.get_hardware() == Hardware.named("gpu")
    spmdx.set_hardware(MINE, topology="infiniband")
    assert spmdx.get_hardware() == MINE and spmdx.get_topology().name == "infiniband"
    assert spmdx.get_topology().levels == spmdx.Topology.named("infiniband").levels
    spmdx.set_topology("gloo")
    assert spmdx.get_hardware() == MINE and spmdx.get_topology().hardware == MINE
    spmdx.set_hardware(None)
    assert spmdx.get_hardware() == Hardware.named("cpu") and spmdx.get_topology().name == "gloo"


def test_what_a_profile_tells_of_memory_is_the_limit():
    spmdx.set_hardware("v100-32")
    assert spmdx.get_memory_limit() == 32 * 2**30
    spmdx.set_memory_limit("1 GiB")
    spmdx.set_hardware(MINE)  # tells nothing
    assert spmdx.get_memory_limit() == 2**30
    spmdx.set_hardware(None)  # the user's own limit stays
    assert spmdx.get_memory_limit() == 2**30
    spmdx.set_memory_limit(None)
    for after in (None, MINE, "cpu"):  # one of a profile goes with it
        spmdx.set_hardware("h100-80")
        assert spmdx.get_memory_limit() == 80 * 2**30
        spmdx.set_hardware(after)
        assert spmdx.get_memory_limit() is None


def test_hardware_that_was_broken_later_is_refused_and_changes_nothing():
    broken = copy.deepcopy(MINE)
    broken.flops_per_second["f32"] = -1
    with pytest.raises(spmdx.ShardingError, match="test_hardware.py:.* set_hardware: flops_per"):
        spmdx.set_hardware(broken, topology="gloo")
    assert spmdx.get_topology() == spmdx.Topology.named("in-process")
    spmdx.set_topology("gloo")
    assert spmdx.get_topology() == spmdx.Topology.named("gloo")


def test_a_refused_topology_changes_nothing():
    spmdx.set_hardware(MINE)
    with pytest.raises(spmdx.ShardingError, match="no topology is called 'pigeon'"):
        spmdx.set_hardware("h100-80", topology="pigeon")
    assert spmdx.get_hardware() == MINE


def test_hardware_is_a_value():
    again = pickle.loads(pickle.dumps(MINE))
    assert again == MINE == copy.deepcopy(MINE) and hash(again) == hash(MINE)
    assert MINE != Hardware("mine", {"f32": 2e12}, 1e12)
    assert str(MINE) == "mine: f32 2, bf16 8 TFLOP/s, memory 1000 GB/s"
    assert str(Hardware.named("tpu-v5e")).endswith("TFLOP/s, memory 16 GiB at 819 GB/s")


# --- what plans make of it ------------------------------------------------------------------------


def test_a_product_takes_the_time_of_its_dtype():
    spmdx.set_hardware(MINE)
    flops, moved = 2 * 256 * 512 * 512, (2 * 256 * 512 + 512 * 512)
    assert predicted_ns(torch.float32) == int(max(flops / 2e3, 4 * moved / 1e3)) + 700
    assert predicted_ns(torch.bfloat16) == int(max(flops / 8e3, 2 * moved / 1e3)) + 700
    assert predicted_ns(torch.float64) == int(max(flops / 2e3, 8 * moved / 1e3)) + 700


def test_a_small_product_takes_the_time_of_its_memory():
    spmdx.set_hardware(MINE)
    moved = 2 * 4 * 8 + 8 * 8
    assert predicted_ns(torch.float32, side=8) == int(4 * moved / 1e3) + 700


def test_a_product_reaches_a_share_of_the_peak_by_its_size():
    shares = ((1e6, 0.25), (2.0 * 256 * 512 * 512, 0.5))
    spmdx.set_hardware(Hardware("mine", {"f32": 2e12}, 1e15, product_efficiency=shares))
    assert predicted_ns(torch.float32) == int(2 * 256 * 512 * 512 / (0.5 * 2e3))
    assert predicted_ns(torch.float32, side=32) == int(2 * 16 * 32 * 32 / (0.25 * 2e3))


def test_products_may_take_longer_by_what_they_read_and_write():
    packing = Hardware("mine", {"f32": 2e12}, 1e15, packing_bytes_per_second=5e10)
    spmdx.set_hardware(packing)
    for side in (512, 32):
        flops, moved = 2 * (side // 2) * side**2, 4 * (2 * (side // 2) * side + side**2)
        assert predicted_ns(torch.float32, side) == int(flops / 2e3 + moved / 50)
    with pytest.raises(spmdx.errors.ShardingError, match="Check its unit and its sign"):
        Hardware("mine", {"f32": 2e12}, 1e15, packing_bytes_per_second=50)


@pytest.mark.parametrize("shape", [(2,), (3,), (4,), (8,)], ids=str)
@pytest.mark.parametrize("name", ["h100-80", "tpu-v4", "stratix-10"])
def test_results_are_the_same_whatever_plans_are_made_for(shape, name):
    def train(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(13, 7), torch.nn.Tanh(), torch.nn.Linear(7, 5))
        model = model.double().to(device)
        x = torch.randn(11, 13).double().to(device)
        if device == "spmdx":
            mesh = spmdx.Mesh(range(shape[0]), shape, ("x",))
            spmdx.mark_sharding(x, mesh, ("x", None))
            spmdx.mark_sharding(model[0].weight, mesh, (None, "x"))
        model(x).square().sum().backward()
        return [parameter.grad.cpu() for parameter in model.parameters()]

    spmdx.set_hardware(name, topology="infiniband")
    for got, wanted in zip(train("spmdx"), train("cpu"), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


def test_a_measured_machine_has_all_figures(tmp_path):
    found = spmdx.calibrate(tmp_path / "here.json").hardware
    assert set(found.flops_per_second) == {"f64", "f32", "bf16"}
    assert found.sources.keys() == FIGURES - {"memory_bytes"}
    assert found.launch_ns > 0 and 1e8 < found.memory_bytes_per_second < 1e13
    moved, shares = zip(*found.memory_efficiency, strict=True)
    assert sorted(moved) == list(moved) and max(shares) == 1 and min(shares) > 0
    sizes = [size for size, _ in found.product_efficiency]
    assert sizes[0] == 2 * 32**3 and sizes == sorted(sizes)
    spmdx.set_topology(tmp_path / "here.json")
    assert spmdx.get_hardware() == found


# --- what is refused ------------------------------------------------------------------------------

GOOD = 'name = "x"\nmemory_bytes_per_second = 1e12\n'
RATES = "[flops_per_second]\nf32 = 1e12\n"


@pytest.mark.parametrize(
    "text, said",
    [
        ("name = ", "is no hardware: TOMLDecodeError"),
        (GOOD, "it has no flops_per_second. Expected name, memory_bytes_per_second, flops_per_se"),
        ("", "it has no flops_per_second. Expected name"),
        (GOOD + "bandwidth = 3\n" + RATES, "found 'bandwidth'. Expected one of name, flops_per"),
        (
            GOOD + 'memory_bytes = "80 GB"\n' + RATES,
            "memory_bytes is '80 GB'. Expected a whole num",
        ),
        (GOOD + "memory_bytes = 80\n" + RATES, "memory_bytes is 80. Expected bytes of a device, f"),
        (GOOD + "memory_bytes = -80_000_000_000\n" + RATES, "memory_bytes is -8e+10. Expected byt"),
        (GOOD + "launch_ns = -1\n" + RATES, "launch_ns is -1. Expected nanoseconds, from 0 to 10"),
        (GOOD + "launch_ns = 0.9\n" + RATES, "launch_ns is 0.9. Expected a whole number of nanos"),
        (GOOD + "[flops_per_second]\n", "flops_per_second is empty. Expected at least one dtype"),
        (GOOD + "[flops_per_second]\nf32 = 67", "flops_per_second of f32 is 67. Expected operat"),
        (GOOD + "[flops_per_second]\ntf32 = 1e12", "'tf32' is no dtype. Expected a name like"),
        (GOOD + "[flops_per_second]\nf32 = nan", "flops_per_second of f32 is nan. Expected oper"),
        (
            GOOD + "flops_per_second = 1e12\n",
            "flops_per_second is 1000000000000.0. Expected operat",
        ),
        (GOOD.replace("1e12", "3.35") + RATES, "memory_bytes_per_second is 3.35. Expected bytes i"),
        (GOOD.replace('"x"', "3") + RATES, "name is 3. Expected a printable string."),
        (GOOD + "product_efficiency = [[1, 2, 3]]\n" + RATES, "product_efficiency is [[1, 2, 3]]"),
        (
            GOOD + "product_efficiency = [[1e9, 95]]\n" + RATES,
            "a share of product_efficiency is 95",
        ),
        (
            GOOD + "memory_efficiency = [[2, 0.5], [1, 1]]\n" + RATES,
            "are not in order: 1 follows 2",
        ),
        (
            GOOD + "memory_efficiency = [[1, 0.1], [2, 1]]\n" + RATES,
            "takes less time than work of 1",
        ),
        (
            GOOD + RATES + "[sources]\nlaunch_ns = 3\n",
            "sources is {'launch_ns': 3}. Expected a text",
        ),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.set_hardware(path)
    message = str(caught.value)
    assert said in message and message.startswith("test_hardware.py:") and "bad.toml" in message
    assert spmdx.get_hardware() == Hardware.named("cpu")


def test_what_is_no_hardware_is_refused():
    with pytest.raises(spmdx.ShardingError, match="no hardware is called 'h100'. Expected one of"):
        spmdx.set_hardware("h100")
    with pytest.raises(spmdx.ShardingError, match="set_hardware: the hardware is a int. Expected"):
        spmdx.set_hardware(80)
    with pytest.raises(spmdx.ShardingError, match="is no hardware: FileNotFoundError"):
        Hardware.load("nowhere.toml")
    with pytest.raises(spmdx.ShardingError, match="is no hardware: IsADirectoryError"):
        spmdx.set_hardware(PROFILES)
    with pytest.raises(spmdx.ShardingError, match="the hardware is a list. Expected a spmdx.Hard"):
        spmdx.Topology("x", [spmdx.topology.Level()], hardware=[])
    with pytest.raises(spmdx.ShardingError, match="memory_bytes_per_second is inf. Expected bytes"):
        Hardware("x", {"f32": 1e12}, math.inf)
    with pytest.raises(spmdx.ShardingError, match="Expected a number of bytes a second"):
        Hardware("x", {"f32": 1e12}, 10**400)
    with pytest.raises(spmdx.ShardingError, match="Expected operations a second, by dtype"):
        Hardware("x", {"f32": 10**400}, 1e12)
    with pytest.raises(spmdx.ShardingError, match="Expected a printable string"):
        Hardware("\ud800", {"f32": 1e12}, 1e12)
