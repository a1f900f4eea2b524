# SPDX-License-Identifier: Apache-2.0
"""torch.spmdx: which device it takes, what it waits for, what memory it tells of; and seeds."""

import math
import types

import numpy as np
import pytest
import spmdx
import torch
from messages import device, message_of

TAKES_A_DEVICE = [
    "current_stream",
    "default_stream",
    "device",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device",
    "synchronize",
]


def refused(name, other):
    return message_of(spmdx.ShardingError, lambda: getattr(torch.spmdx, name)(other))


@pytest.mark.parametrize("name", TAKES_A_DEVICE)
def test_a_device_of_another_type_is_refused(name):
    for other in ("cuda", torch.device("cpu"), torch.device("meta", 0), 1.5, ["spmdx"]):
        assert refused(name, other) == (
            f"HERE: torch.spmdx.{name}: the device is {other!r}. Expected a device of type "
            "'spmdx'. Write 'spmdx', or leave it out."
        )
    for second in (1, "spmdx:1"):
        with pytest.raises(RuntimeError, match="there is one logical spmdx device, spmdx:0, not"):
            getattr(torch.spmdx, name)(second)


@pytest.mark.parametrize("name", TAKES_A_DEVICE)
def test_the_one_device_is_taken_as_cuda_takes_its_own(name):
    asked = getattr(torch.spmdx, name)
    first = asked()
    for one in (None, 0, -5, "spmdx", "spmdx:0", torch.device("spmdx")):
        assert type(asked(one)) is type(first)


def test_a_state_of_random_numbers_is_not_set_elsewhere():
    state = torch.spmdx.get_rng_state()
    changed = torch.ones(16, dtype=torch.uint8)
    assert "the device is 'cuda'" in message_of(
        spmdx.ShardingError, lambda: torch.spmdx.set_rng_state(changed, "cuda")
    )
    with pytest.raises(RuntimeError, match="one logical spmdx device"):
        torch.spmdx.set_rng_state_all([changed, changed])
    torch.spmdx.set_rng_state_all([])
    assert torch.equal(torch.spmdx.get_rng_state(), state)
    torch.spmdx.set_rng_state_all([changed])
    assert torch.equal(torch.spmdx.get_rng_state_all()[0], changed)
    torch.spmdx.set_rng_state(state)


WAITS = {
    "module": lambda: torch.spmdx.synchronize(),
    "stream": lambda: torch.spmdx.Stream().synchronize(),
    "current stream": lambda: torch.spmdx.current_stream().synchronize(),
    "event": lambda: torch.spmdx.Event().synchronize(),
    "recorded event": lambda: torch.spmdx.current_stream().record_event().synchronize(),
}


@pytest.mark.parametrize("way", WAITS)
def test_who_waits_for_the_device_waits_for_what_was_recorded(way):
    spmdx.sync(wait=True)
    x = device(4) + 1
    before = spmdx.debug.counters()["steps"]
    WAITS[way]()
    ran = spmdx.debug.counters()
    assert ran["steps"] == before + 1
    assert x.tolist() == [1.0] * 4
    assert spmdx.debug.counters()["steps"] == ran["steps"]


def test_memory_is_told_as_cuda_tells_it():
    stats = torch.spmdx.memory_stats()
    for kind in ("allocated_bytes.all", "reserved_bytes.all"):
        assert 0 < stats[f"{kind}.current"] <= stats[f"{kind}.peak"]
    of_device = torch.spmdx.get_device_properties()
    assert isinstance(of_device, types.SimpleNamespace) and of_device.name == "spmdx"
    assert of_device.total_memory == torch.spmdx.mem_get_info()[1]


SEEDS = ["a", None, 2**64, -(2**63) - 1, math.nan, math.inf]


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_a_wrong_seed_is_refused(seed):
    before = [torch.get_rng_state(), torch.spmdx.get_rng_state()]
    assert message_of(spmdx.ShardingError, lambda: spmdx.manual_seed(seed)) == (
        f"HERE: manual_seed: the seed is {seed!r}. Expected an int from -2**63 to 2**64 - 1. Write "
        "0."
    )
    after = [torch.get_rng_state(), torch.spmdx.get_rng_state()]
    assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("seed", [-(2**63), 2**64 - 1, np.int64(3), torch.tensor(3), "3"], ids=str)
def test_seeds_are_those_of_pytorch(seed):
    found = spmdx.manual_seed(seed).initial_seed(), torch.spmdx.initial_seed()
    assert found == (torch.manual_seed(seed).initial_seed(), torch.spmdx.initial_seed())
