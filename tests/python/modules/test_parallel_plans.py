# SPDX-License-Identifier: Apache-2.0
"""Plans of torch.distributed.tensor.parallel, read as annotations: equal to one device."""

import pytest
import spmdx
import torch
from torch import nn
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
)

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


class Block(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x, scale=None):
        h = self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return x + (h if scale is None else h * scale)


class Network(nn.Module):
    """Words of 11, `width` features, `inner` hidden ones: sizes that few meshes divide."""

    def __init__(self, width=6, inner=10):
        super().__init__()
        self.table = nn.Embedding(11, width)
        self.blocks = nn.ModuleList([Block(width, inner), Block(width, inner)])
        self.head = nn.Linear(width, 11)

    def forward(self, words):
        x = self.table(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


PLANS = {
    "megatron": {
        "table": RowwiseParallel(input_layouts=Replicate()),
        "blocks.*.up": ColwiseParallel(),
        "blocks.*.down": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Replicate()),
    },
    "sequence": {
        "table": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "blocks.?.norm": SequenceParallel(),
        "blocks.*.up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        "blocks.*.down": RowwiseParallel(output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    },
    "prepared": {
        "": PrepareModuleOutput(output_layouts=Shard(-1), desired_output_layouts=Replicate()),
        "table": ColwiseParallel(),
        "blocks.0": PrepareModuleInput(
            input_layouts=(Shard(2),), desired_input_layouts=(Replicate(),)
        ),
        "blocks.1": PrepareModuleInputOutput(
            input_layouts=(Replicate(),),
            desired_input_layouts=(Shard(0),),
            output_layouts=(Shard(0),),
            desired_output_layouts=(Replicate(),),
        ),
        "head": ColwiseParallel(),
    },
}


def trained(model, words, targets, steps=3):
    """The losses, and all parameters afterwards, on the CPU."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [each.detach().cpu() for each in (*losses, *model.parameters())]


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(11, (2, 5, 7), generator=generator).unbind()


def pair():
    torch.manual_seed(0)
    here, there = Network().double(), Network().double()
    there.load_state_dict(here.state_dict())
    return here, there.to("spmdx")


def same(mine, theirs):
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("plan", PLANS)
def test_training_by_a_plan_equals_one_device(devices, plan):
    here, there = pair()
    mesh = spmdx.Mesh(range(devices), (devices,), ("tp",))
    assert spmdx.nn.parallelize_module(there, mesh, PLANS[plan]) is there
    words, targets = batch()
    wanted = trained(here, words, targets)
    same(trained(there, words.to("spmdx"), targets.to("spmdx")), wanted)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 4)])
def test_a_plan_on_one_axis_leaves_the_other_to_the_batch_and_to_fully_shard(shape):
    here, there = pair()
    mesh = spmdx.Mesh(range(shape[0] * shape[1]), shape, ("dp", "tp"))
    plan = PLANS["sequence"]
    spmdx.nn.parallelize_module(there, mesh, plan, axis="tp", data_axis="dp")
    spmdx.fully_shard(there, mesh, "dp")
    up = there.blocks[0].up.weight.partition_spec
    assert "tp" in up[0] if isinstance(up[0], tuple) else up[0] == "tp"
    words, targets = batch()
    cut = [spmdx.mark_sharding(x.to("spmdx"), mesh, ("dp", ...)) for x in (words, targets)]
    same(trained(there, *cut), trained(here, words, targets))


def test_parameters_lie_as_their_styles_say():
    _, net = pair()
    spmdx.nn.parallelize_module(net, spmdx.get_1d_mesh("tp"), PLANS["sequence"])
    found = {n: tuple(p.partition_spec) for n, p in net.named_parameters() if "1" not in n}
    assert found == {
        "table.weight": ("tp", None),
        "blocks.0.norm.weight": (None,),
        "blocks.0.norm.bias": (None,),
        "blocks.0.up.weight": ("tp", None),
        "blocks.0.up.bias": ("tp",),
        "blocks.0.down.weight": (None, "tp"),
        "blocks.0.down.bias": (None,),
        "head.weight": ("tp", None),
        "head.bias": ("tp",),
    }


def collectives(output):
    return [(c.kind, c.count) for c in spmdx.explain(output).collectives]


@pytest.mark.parametrize(
    ("rows", "kinds"), [({}, [("all_reduce", 1)]), ({"output_layouts": Shard(1)}, "scatter")]
)
def test_output_layouts_decide_what_crosses(rows, kinds):
    net = nn.Sequential(nn.Linear(8, 64, bias=False), nn.Linear(64, 8, bias=False)).to("spmdx")
    mesh = spmdx.Mesh(range(4), (4,), ("tp",))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel(**rows)}
    spmdx.nn.parallelize_module(net, mesh, plan)
    spmdx.mark_step()
    found = collectives(net(torch.ones(2, 16, 8).to("spmdx")))
    assert found == (kinds if rows == {} else [("reduce_scatter", 1)])
    spmdx.mark_step()


def test_what_is_passed_keeps_its_own_annotation_and_writes_in_place_reach_it():
    class Doubling(nn.Module):
        def forward(self, x):
            return x.mul_(2)

    mesh = spmdx.Mesh(range(3), (3,), ("tp",))
    style = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1))
    net = spmdx.nn.parallelize_module(Doubling().to("spmdx"), mesh, style)
    x = spmdx.mark_sharding(torch.arange(20.0).reshape(4, 5).to("spmdx"), mesh, ("tp", None))
    y = net(x)
    assert spmdx.get_annotation(x).spec == ("tp", None)
    assert spmdx.get_annotation(y).spec == (None, "tp")
    wanted = torch.arange(20.0).reshape(4, 5) * 2
    assert torch.equal(x.cpu(), wanted) and torch.equal(y.cpu(), wanted)


def test_arguments_by_name_get_their_layouts():
    _, net = pair()
    mesh = spmdx.Mesh(range(2), (2,), ("tp",))
    style = PrepareModuleInput(
        input_kwarg_layouts={"scale": Replicate()},
        desired_input_kwarg_layouts={"scale": Shard(-1)},
    )
    block = spmdx.nn.parallelize_module(net.blocks[0], mesh, style)
    seen = []
    block.register_forward_pre_hook(
        lambda m, args, kwargs: seen.append(spmdx.get_annotation(kwargs["scale"])), with_kwargs=True
    )
    x, scale = torch.randn(3, 6).double(), torch.randn(6).double()
    y = block(x.to("spmdx"), scale=scale.to("spmdx"))
    assert seen == [spmdx.Sharding(mesh, ("tp",))]
    same([y.detach().cpu()], [block.cpu()(x, scale=scale).detach()])


@pytest.mark.parametrize("devices", [2, 3])
def test_a_loss_in_parallel_needs_no_context_and_bears_one(devices):
    here, there = pair()
    mesh = spmdx.Mesh(range(devices), (devices,), ("tp",))
    spmdx.nn.parallelize_module(there, mesh, PLANS["sequence"])
    words, targets = batch()
    wanted = trained(here, words, targets)
    with loss_parallel():
        same(trained(there, words.to("spmdx"), targets.to("spmdx")), wanted)


class Twice(ColwiseParallel):
    """Does something that nobody can see."""


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"blocks.*.left": ColwiseParallel()}, "'blocks.*.left' of the plan matches no module"),
        ({3: ColwiseParallel()}, "3 of the plan matches no module"),
        ({"head": 3}, "the plan gives 'head' 3. Expected one of ColwiseParallel"),
        ({"head": Twice()}, "a subclass of ColwiseParallel, which does more than is seen"),
        ({"head": ParallelStyle}, "Expected one of ColwiseParallel"),
        (None, "Expected one of ColwiseParallel"),
        ({"blocks.0": RowwiseParallel()}, "a Block, the style RowwiseParallel"),
        ({"head": ColwiseParallel(output_layouts=Partial())}, "has the layout Partial"),
    ],
)
def test_what_no_plan_can_say_is_refused_and_marks_nothing(plan, said):
    _, net = pair()
    mesh = spmdx.get_1d_mesh("tp")
    given = {"table": ColwiseParallel(), **plan} if isinstance(plan, dict) else plan
    with pytest.raises(spmdx.ShardingError) as caught:
        spmdx.nn.parallelize_module(net, mesh, given)
    assert said in str(caught.value)
    assert all(spmdx.get_annotation(p) is None for p in net.parameters())
    assert not net.table._forward_hooks


def test_axes_that_are_not_there_or_not_named_are_refused():
    _, net = pair()
    grid = spmdx.Mesh(range(8), (4, 2), ("dp", "model"))
    for options, said in (
        ({}, "has no axis 'tp'. Expected one of .'dp', 'model'"),
        ({"axis": "x"}, "has no axis 'x'"),
        ({"axis": "model", "data_axis": "x"}, "Pass data_axis='dp'"),
    ):
        with pytest.raises(spmdx.ShardingError, match=said):
            spmdx.nn.parallelize_module(net, grid, PLANS["megatron"], **options)


def test_calls_that_do_not_fit_their_layouts_are_refused():
    mesh = spmdx.Mesh(range(2), (2,), ("tp",))
    for plan, said in (
        (PrepareModuleInput(input_layouts=(None, None), desired_input_layouts=(None, None)), "as"),
        (RowwiseParallel(output_layouts=Shard(3)), "is Shard.dim=3., its rank is 2"),
    ):
        net = spmdx.nn.parallelize_module(nn.Linear(4, 4).to("spmdx"), mesh, plan)
        with pytest.raises(spmdx.ShardingError, match=said):
            net(torch.ones(2, 4).to("spmdx"))
