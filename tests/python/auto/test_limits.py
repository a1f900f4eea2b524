# SPDX-License-Identifier: Apache-2.0
"""Which limit of memory predictions and searches are made for, and how what lacks is told."""

import pytest
import spmdx
import torch
from spmdx._base.sizes import in_bytes
from spmdx.auto import Strategy
from spmdx.topology import Level, Topology

TINY = spmdx.Hardware("tiny", {"f32": 1e12}, 1e11, memory_bytes=2**20)
MINE = spmdx.Hardware("mine", {"f32": 1e12}, 1e11)
JOINED = Topology("joined", (Level(),), TINY)


def limit(**machine):
    """What a device holds for a prediction: it lacks the rest of the peak."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2048, 2048, bias=False).to("spmdx")

    def step(batches):
        for x in batches:
            model(x).square().mean().backward()

    batch = torch.ones(4, 2048)
    found = spmdx.auto.predict(Strategy(), step, model, batch=batch, **machine)
    if not found.why:
        return None
    number, unit = found.why.removeprefix("lacks ").split()
    lacking = float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
    return pytest.approx(found.peak_bytes - lacking, abs=2**17)  # of three digits


def test_a_limit_that_was_set_holds_when_links_are_named():
    spmdx.set_hardware("h100-80")
    spmdx.set_memory_limit("6 MiB")
    assert limit() == limit(topology="nvlink") == 6 * 2**20
    assert limit(topology="nvlink", memory_limit="5 MiB") == 5 * 2**20
    assert spmdx.get_memory_limit() == 6 * 2**20


def test_a_search_keeps_a_limit_that_was_set():
    spmdx.set_hardware("h100-80")
    spmdx.set_memory_limit("100 KiB")
    model = torch.nn.Linear(512, 512).to("spmdx")
    with pytest.raises(spmdx.ShardingError, match="2 devices of 102,400 bytes"):
        spmdx.auto.search(
            lambda batches: [model(x).sum().backward() for x in batches],
            model,
            batch=torch.ones(2, 512),
            devices=2,
            topology="nvlink",
        )


def test_hardware_that_is_named_has_its_own():
    spmdx.set_memory_limit("6 MiB")
    assert limit(hardware=TINY) == limit(hardware=TINY, topology="gloo") == 2**20
    assert limit(hardware=TINY, memory_limit="5 MiB") == 5 * 2**20
    assert limit(hardware="h100-80") is None
    assert limit(hardware=MINE) == 6 * 2**20  # which does not tell


def test_a_topology_may_bring_hardware():
    spmdx.set_hardware("h100-80")
    assert limit(topology="nvlink") is None
    assert limit(topology=JOINED) == 2**20
    spmdx.set_memory_limit("6 MiB")
    assert limit(topology=JOINED) == 2**20
    assert limit(topology=JOINED, hardware=MINE) == 6 * 2**20
    assert spmdx.get_hardware().name == "h100-80"


def test_the_topology_in_use_may_have_hardware():
    spmdx.set_topology(JOINED)
    assert limit() == 2**20
    spmdx.set_memory_limit("6 MiB")
    assert limit() == 6 * 2**20
    spmdx.set_hardware("h100-80")
    spmdx.set_memory_limit(None)  # which says that there is none
    assert limit() is None


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1_600_000, "1.53 MiB"), (2**30 - 1, "1,024 MiB")],
)
def test_sizes_have_three_digits(size, text):
    assert in_bytes(size) == text


@pytest.mark.parametrize("given", [2**70, 2**63, "99999999999999 TiB", 0, True, 1.5])
def test_what_is_no_limit_is_refused(given):
    with pytest.raises(spmdx.ShardingError) as error:
        limit(memory_limit=given)
    assert f"memory_limit is {given!r}. Expected a number of bytes from 1 to" in str(error.value)
