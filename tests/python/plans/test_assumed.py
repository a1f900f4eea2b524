# SPDX-License-Identifier: Apache-2.0
"""Within plan_only constants can be read, and what the program says that other tensors hold."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
REFUSED = r"plan_only\(\) planned the step.*Expected only its shape.*spmdx\.assume"
MANY = 16 << 20  # elements that are no more than may be computed


def mesh_of(devices):
    return spmdx.Mesh(range(devices), (devices // 2, 2), ("data", "model"))


def arange(n):
    return torch.arange(n, device="spmdx")


def random(*shape):
    return torch.rand(*shape, device="spmdx")


def filled_in_place():
    t = torch.zeros(3, 4, device="spmdx")
    t[1] += 2
    t[:, 0].fill_(5)
    return t


CONSTANTS = {
    "factories": lambda: torch.stack([torch.ones(3), torch.full((3,), 7.0), torch.zeros(3)]),
    "a list": lambda: torch.tensor([[1, 2], [3, 4]]),
    "positions": lambda: (torch.arange(9).diff() == 1).all(),
    "one of them": lambda: torch.arange(4)[0] == 0,
    "a transposed view": lambda: torch.arange(6).view(2, 3).t(),
    "a causal mask": lambda: torch.ones(4, 4).tril().bool() & (torch.arange(4) < 3),
    "sorted": lambda: torch.tensor([3, 1, 2]).sort().values,
    "cumulative": lambda: torch.arange(5).cumsum(0),
    "nonzero": lambda: (torch.arange(6) % 2).nonzero(),
    "a mask as an index": lambda: torch.arange(6.0)[torch.arange(6) > 2],
    "unique": lambda: torch.tensor([2, 1, 2]).unique(),
    "a product of matrices": lambda: torch.eye(3) @ torch.arange(9.0).view(3, 3),
    "complex": lambda: torch.view_as_complex(torch.arange(4.0).view(2, 2)).conj(),
    "bfloat16": lambda: torch.linspace(0, 1, 5, dtype=torch.bfloat16),
    "softmax": lambda: torch.arange(4.0).softmax(0),
    "nothing": lambda: torch.zeros(0, 3),
}


@pytest.mark.parametrize("make", CONSTANTS.values(), ids=CONSTANTS)
@pytest.mark.parametrize("steps", [0, 1])
def test_what_depends_on_constants_alone_is_what_it_would_be(make, steps):
    want = make()
    with spmdx.plan_only(), torch.device("spmdx"):
        t = make()
        for _ in range(steps):
            spmdx.mark_step()
        got = t.cpu()
        assert got.dtype == want.dtype and torch.allclose(got, want)
        assert t.tolist() == want.tolist() and str(t).startswith("tensor(")


def test_tensors_from_the_host_are_constants_if_they_are_small():
    with spmdx.plan_only():
        host = torch.tensor([1, 1, 0])
        mask = host.to("spmdx")
        host.zero_()
        assert mask.tolist() == [1, 1, 0] and not mask.bool().all()
        large = torch.ones(1 << 18 | 1).to("spmdx")
        with pytest.raises(spmdx.ShardingError, match=REFUSED):
            large.sum().item()
        filled = torch.empty(2, device="spmdx").copy_(torch.tensor([3.0, 4.0]))
        assert filled.tolist() == [3, 4] and filled_in_place()[1].tolist() == [5, 2, 2, 2]


UNKNOWN = {
    "random numbers": lambda: random(4) > 2,
    "a parameter": lambda: nn.Linear(4, 4).to("spmdx").weight.sum(),
    "a parameter that was loaded": lambda: loaded().weight.sum(),
    "memory as it was": lambda: torch.empty(4, device="spmdx"),
    "what they make with constants": lambda: arange(4) + torch.empty(4, device="spmdx"),
    "dropout": lambda: F.dropout(torch.ones(4, device="spmdx")),
    "a part of random numbers": lambda: torch.cat([arange(4), random(4)])[:4],
}


def loaded():
    layer = nn.Linear(4, 4, device="spmdx")
    layer.load_state_dict(nn.Linear(4, 4).state_dict())
    return layer


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
def test_what_depends_on_something_else_is_refused(make):
    with spmdx.plan_only():
        t = make()
        for _ in range(2):
            with pytest.raises(spmdx.ShardingError, match=REFUSED):
                t.tolist()
            spmdx.mark_step()


def test_what_is_computed_from_tensors_of_before_is_refused():
    x = torch.arange(4.0).to("spmdx")
    with spmdx.plan_only():
        assert x.tolist() == [0, 1, 2, 3]
        for read in (lambda: (x + 1).tolist(), lambda: x[0].item()):
            with pytest.raises(spmdx.ShardingError, match=REFUSED):
                read()


def test_a_large_constant_is_refused_and_costs_nothing():
    with spmdx.plan_only():
        t = torch.ones(10**9, device="spmdx")
        total = t.sum()
        for _ in range(2):
            with pytest.raises(spmdx.ShardingError, match="of 4000000000 bytes. Expected 2684354"):
                total.item()
            spmdx.mark_step()
        assert torch.ones(MANY, device="spmdx").sum().item() == MANY


def test_errors_of_a_constant_begin_with_the_line_of_the_op():
    with spmdx.plan_only():
        rows = torch.ones(4, 2, device="spmdx")[torch.tensor([9]).to("spmdx")]
        with pytest.raises(IndexError, match=r"^test_assumed\.py:\d+: aten\.index"):
            rows.tolist()


def test_constants_go_on_over_many_steps():
    with spmdx.plan_only():
        count = torch.zeros((), device="spmdx")
        for _ in range(200):
            count += 1
            spmdx.mark_step()
        assert count.item() == 200


def lookup(x, mask):
    """Two reads: of what the host said, and of a part of it."""
    y = x * 2 if mask.all() else x * mask[:, None]
    spmdx.mark_step()
    reports = [spmdx.explain().to_dict()]
    y = y.softmax(-1).sum(0) * mask[0].item()
    spmdx.mark_step()
    return [*reports, spmdx.explain().to_dict()]


def test_steps_end_where_a_run_would_end_them():
    def steps():
        mesh = mesh_of(8)
        x = torch.ones(8, 6).to("spmdx")
        spmdx.mark_sharding(x, mesh, ("data", None))
        return lookup(x, torch.tensor([1, 1, 1, 1, 0, 1, 1, 1]).to("spmdx"))

    ran = steps()
    spmdx.sync(wait=True)  # the last step is counted when it ends
    spmdx.debug.reset_counters()
    spmdx._C.clear_cache()
    with spmdx.plan_only():
        planned = steps()
    assert planned == ran
    assert spmdx.debug.counters()["steps"] == 0 and spmdx.debug.counters()["implicit_syncs"] == 1


ASSUMED = {
    "a number": (lambda: random(4).sum(), 2.5),
    "a bool": (lambda: random(4).sum() > 1, True),
    "a list": (lambda: random(2, 2), [[1, 2], [3, 4]]),
    "a tensor": (lambda: random(3), torch.tensor([1, 2, 3])),
    "an integer": (lambda: random(3).argmax(), 2),
    "a view": (lambda: random(3, 4)[1], [1, 2, 3, 4]),
    "a transposed view": (lambda: random(2, 3).t(), [[1, 2], [3, 4], [5, 6]]),
    "a constant": (lambda: arange(2), [5, 6]),
}


@pytest.mark.parametrize("make, value", ASSUMED.values(), ids=ASSUMED)
@pytest.mark.parametrize("steps", [0, 1])
def test_what_is_assumed_is_read_and_computed_with(make, value, steps):
    with spmdx.plan_only():
        t = make()
        for _ in range(steps):
            spmdx.mark_step()
        assert spmdx.assume(t, value) is t
        want = torch.as_tensor(value).to(t.dtype)
        for _ in range(2):
            assert torch.equal(t.cpu(), want)
            assert torch.equal((t + t).cpu(), want + want)
            assert torch.equal(t.reshape(-1)[-1:].cpu(), want.reshape(-1)[-1:])
            spmdx.mark_step()


def test_a_view_that_is_taken_again_shows_what_is_assumed():
    with spmdx.plan_only():
        t = random(4)
        spmdx.assume(t[1], 7)
        for _ in range(2):
            assert t[1].item() == 7 and (t[1] * 2).item() == 14
            with pytest.raises(spmdx.ShardingError, match=REFUSED):
                t[2].item()
            spmdx.mark_step()
        t.mul_(2)
        with pytest.raises(spmdx.ShardingError, match=REFUSED):
            t[1].item()


def test_what_is_said_last_holds_until_the_tensor_is_written():
    with spmdx.plan_only():
        t = random(2)
        spmdx.assume(t, [1, 2])
        spmdx.assume(t, [3, 4])
        assert t.tolist() == [3, 4]
        t.add_(1)
        assert t.tolist() == [4, 5]  # it is known what is written
        t.mul_(random(2))
        with pytest.raises(spmdx.ShardingError, match=REFUSED):
            t.tolist()


def test_what_is_assumed_is_a_copy():
    with spmdx.plan_only():
        said = torch.tensor([1.0, 2.0])
        t = spmdx.assume(random(2), said)
        said.zero_()
        t.cpu().zero_()
        assert t.tolist() == [1, 2]


def test_a_program_that_depends_on_values_is_planned_for_those_that_are_assumed():
    with spmdx.plan_only():
        mesh = mesh_of(1024)
        tokens = random(4096, 512)
        spmdx.mark_sharding(tokens, mesh, ("data", None))
        kept = tokens.sum(-1) > 0
        spmdx.assume(kept, torch.arange(4096) % 4 != 0)
        rows = tokens[kept]
        spmdx.mark_step()
        assert rows.shape == (3072, 512) and spmdx.explain().mesh == "Mesh(data=512, model=2)"


def test_nothing_is_left_after_the_block():
    before = torch.arange(2.0).to("spmdx")
    with spmdx.plan_only():
        constant, said = arange(4), spmdx.assume(random(2), [1, 2])
        spmdx.assume(before, [8, 9])
        assert before.tolist() == [8, 9] and (before * 2).tolist() == [16, 18]
        constant.tolist()
    assert before.tolist() == [0, 1] and (before + 1).tolist() == [1, 2]
    for tensor in (constant, said):
        with pytest.raises(spmdx.ShardingError, match="outside of plan_only"):
            tensor.tolist()
    with spmdx.plan_only():
        assert before.tolist() == [0, 1]
        with pytest.raises(spmdx.ShardingError, match=REFUSED):
            said.tolist()


def test_an_inner_block_is_a_part_of_the_outer_one():
    with spmdx.plan_only():
        t = random(2)
        with spmdx.plan_only():
            spmdx.assume(t, [1, 2])
            constant = arange(2)
        assert t.tolist() == [1, 2] and constant.tolist() == [0, 1]


class ReadsPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        assert (torch.arange(len(x), device=x.device).diff() == 1).all()
        for layer in self.layers:
            x = layer(x).relu()
        return x


def test_cuts_of_a_pipeline_are_chosen_for_a_model_that_reads_constants():
    model = ReadsPositions().to("spmdx")
    spmdx.nn.pipeline(model, spmdx.Mesh(range(2), (2,), ("pipe",)))
    model(torch.ones(4, 8).to("spmdx")).sum().backward()
    spmdx.mark_step()
    assert len(spmdx.explain().pipeline.stages) == 2
