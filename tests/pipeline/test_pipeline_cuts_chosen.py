# SPDX-License-Identifier: Apache-2.0
"""Cuts that spmdx.nn.pipeline chooses: what is learned stays, stages are balanced, and they fit."""

import contextlib
import copy
import pickle

import pytest
import spmdx
import torch
from messages import message_of
from pipeline_equality import check_equal
from pipeline_models import CASES, make
from torch import nn

WIDTH, ROWS = 32, 16


@pytest.fixture(autouse=True)
def no_memory_limit_is_left():
    yield
    spmdx.set_memory_limit(None)


def line_of(p):
    return spmdx.Mesh(range(p), (p,), ("pipe",))


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * width), nn.Linear(4 * width, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Chain(nn.Module):
    """An embedding, equal blocks and a head, registered in another order than they run."""

    def __init__(self, blocks=8, width=WIDTH):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(WIDTH, 8)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.embed = nn.Embedding(8, WIDTH)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def stages_of(model):
    """By name of a module with parameters of its own, the stage of the first one."""
    found = {}
    for name, parameter in model.named_parameters():
        sharding = spmdx.get_annotation(parameter)
        stage = None if sharding is None or sharding.stage is None else sharding.stage[1]
        found.setdefault(name.rpartition(".")[0], stage)
    return found


def chosen(p, model=None, rows=ROWS, **options):
    """The model and the stages of its modules, after a first call."""
    model = (model or Chain()).to("spmdx")
    spmdx.nn.pipeline(model, line_of(p), **options)
    assert set(stages_of(model).values()) == {None}
    model(torch.arange(rows).remainder(8).to("spmdx"))
    return model, stages_of(model)


def blocks_by_stage(stages, p):
    of_blocks = [stage for name, stage in stages.items() if name.endswith(".up")]
    return [of_blocks.count(stage) for stage in range(p)]


@pytest.mark.parametrize("name", CASES)
def test_models_learn_what_they_learn_on_one_device(name):
    check_equal(
        name,
        "clipped",
        line_of(2),
        2,
        4,
        prepare=lambda model, mesh: spmdx.nn.pipeline(model, mesh),
    )


@pytest.mark.parametrize("schedule, p", [("gpipe", 3), ("zb-h1", 4)])
def test_schedules(schedule, p):
    def prepare(model, mesh):
        spmdx.nn.pipeline(model, mesh, schedule=schedule)

    check_equal("llama", "accumulated", line_of(p), p, 4, schedule=schedule, prepare=prepare)


def test_two_stages_a_device_and_rows_cut_by_another_axis():
    mesh = spmdx.Mesh(range(4), (2, 2), ("pipe", "data"))

    def prepare(model, mesh):
        spmdx.nn.pipeline(model, mesh, chunks=2)

    check_equal("llama", "accumulated", mesh, 2, 4, prepare=prepare, data_axis="data")


@pytest.mark.parametrize("p", [2, 4])
def test_equal_blocks_are_shared_out_evenly(p):
    _, stages = chosen(p)
    assert stages["embed"] == 0 and stages["head"] == p - 1
    assert blocks_by_stage(stages, p) == [8 // p] * p


def test_stages_follow_the_order_in_which_modules_ran():
    _, stages = chosen(4)
    order = ["embed", *(f"blocks.{i}.up" for i in range(8)), "head"]
    assert [stages[name] for name in order] == sorted(stages[name] for name in order)


def test_a_long_layer_gets_a_stage_of_its_own():
    model = Chain(4)
    model.blocks[1] = Block(64 * WIDTH)
    _, stages = chosen(3, model)
    assert [stages[f"blocks.{i}.up"] for i in range(4)] == [0, 1, 2, 2]


def bytes_of(module):
    return 4 * sum(p.numel() * p.element_size() for p in module.parameters())


def test_a_memory_limit_forces_other_cuts():
    """The embedding holds what three blocks hold, and takes no time."""
    model = Chain()
    model.embed = nn.Embedding(3 * bytes_of(Block()) // (16 * WIDTH), WIDTH)
    _, free = chosen(2, copy.deepcopy(model))
    assert blocks_by_stage(free, 2) == [4, 4]
    spmdx.set_memory_limit(6 * bytes_of(Block()) + 200_000)
    _, bound = chosen(2, model)
    assert blocks_by_stage(bound, 2) != [4, 4] and bound["embed"] == 0
    assert blocks_by_stage(bound, 2)[0] < 4


def test_gpipe_keeps_all_microbatches_so_fewer_rows_fit():
    spmdx.set_memory_limit("2 MiB")
    chosen(2, rows=128)
    model = Chain().to("spmdx")
    spmdx.nn.pipeline(model, line_of(2), schedule="gpipe")
    with pytest.raises(spmdx.ShardingError, match="more than the memory limit of 2097152"):
        model(torch.zeros(128, dtype=torch.long).to("spmdx"))


def test_nothing_fits():
    spmdx.set_memory_limit(100_000)
    model = Chain(2).to("spmdx")
    spmdx.nn.pipeline(model, line_of(2))
    ids = torch.zeros(ROWS, dtype=torch.long).to("spmdx")
    text = message_of(spmdx.ShardingError, lambda: model(ids))
    assert text == TEXT
    assert message_of(spmdx.ShardingError, lambda: model(ids)) == text  # still to be chosen
    spmdx.set_memory_limit("1 GiB")
    model(ids)
    assert stages_of(model)["head"] == 1


TEXT = (
    "HERE: pipeline: stage 0 (modules embed to blocks.0) needs 158464 bytes on a device, 58464 "
    "more than the memory limit of 100000. Expected cuts where every stage fits, and of all cuts "
    "into 2 stages these come nearest. Raise the limit by spmdx.set_memory_limit, use more stages "
    "or smaller microbatches, or cut the parameters along another axis."
)


def test_the_trial_leaves_no_trace():
    """Buffers, random numbers, gradients and hooks are those without it."""
    torch.manual_seed(3)
    norm = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)))
    model = nn.Sequential(norm, nn.Dropout(0.5), nn.Linear(4, 4)).to("spmdx")
    alone = copy.deepcopy(model)
    spmdx.nn.pipeline(model, line_of(2))
    x, results = torch.randn(8, 4).to("spmdx"), []
    for net in (model, alone):
        spmdx.manual_seed(5)
        torch.manual_seed(5)
        results.append(net(x).cpu())
        assert not net._forward_pre_hooks and all(p.grad is None for p in net.parameters())
    assert torch.allclose(*results)
    for name, value in model.state_dict().items():
        assert torch.allclose(value.cpu(), alone.state_dict()[name].cpu()), name


class Keeping(Chain):
    """Makes a mask when it is first called, and another one for each length; counts calls."""

    mask, calls = None, 0

    def __init__(self):
        super().__init__(2)
        self.by_length, self.lengths = {}, []

    def forward(self, ids):
        self.calls += 1
        if self.mask is None:
            self.mask = torch.ones(WIDTH, device=ids.device)
        if len(ids) not in self.by_length:
            self.by_length[len(ids)] = torch.ones(len(ids), 1, device=ids.device)
            self.lengths.append(len(ids))
        x = self.embed(ids) * self.mask * self.by_length[len(ids)]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_what_modules_keep_is_of_the_true_call():
    model, _ = chosen(2, Keeping())
    assert model.calls == 1 and model.lengths == [ROWS]
    assert model.mask.sum().item() == WIDTH and model.by_length[ROWS].sum().item() == ROWS


def test_casts_of_autocast_are_of_the_true_call():
    model = Chain().to("spmdx")
    spmdx.nn.pipeline(model, line_of(2))
    ids = torch.zeros(ROWS, dtype=torch.long).to("spmdx")
    with torch.autocast("spmdx", dtype=torch.bfloat16):
        loss = model(ids).float().mean()
    loss.backward()
    assert loss.isfinite().item() and model.head.weight.grad.isfinite().all().item()


def test_what_waits_to_choose_goes_with_copies_and_ends_with_other_cuts():
    model = Chain().to("spmdx")
    spmdx.nn.pipeline(model, line_of(2))
    ids = torch.zeros(ROWS, dtype=torch.long).to("spmdx")
    other = copy.deepcopy(model)
    other(ids)
    assert stages_of(other)["head"] == 1 and stages_of(model)["head"] is None
    assert pickle.dumps(next(iter(model._forward_pre_hooks.values())))
    cuts = ["blocks", "embed"]
    spmdx.nn.pipeline(model, spmdx.Mesh(range(3), (3,), ("pipe",)), cuts=cuts)
    assert not model._forward_pre_hooks and stages_of(model)["embed"] == 2


def test_a_model_is_cut_anew_for_another_number_of_stages():
    model, _ = chosen(2)
    spmdx.nn.pipeline(model, line_of(4))
    model(torch.zeros(ROWS, dtype=torch.long).to("spmdx"))
    assert blocks_by_stage(stages_of(model), 4) == [2] * 4


def test_at_any_scale():
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(1024), (4, 256), ("pipe", "data"))
        model = make("gpt without dropout", torch.float32).to("spmdx")
        spmdx.nn.pipeline(model, mesh)
        ids = torch.zeros(512, 6, dtype=torch.long).to("spmdx")
        spmdx.mark_sharding(ids, mesh, ("data", None))
        model(ids).sum().backward()
        spmdx.mark_step()
        assert len(spmdx.explain().pipeline.stages) == 4


@pytest.mark.parametrize("planned", [contextlib.nullcontext, spmdx.plan_only])
def test_random_numbers_go_on_as_if_nothing_had_been_tried(planned):
    after = []
    with planned():
        for stages in (1, 2):
            model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Dropout()) for _ in range(2)))
            model.to("spmdx")
            if stages > 1:
                spmdx.nn.pipeline(model, line_of(2))
            spmdx.manual_seed(1)
            model(torch.ones(4, 8).to("spmdx"))
            after.append(spmdx._C.default_generator().get_state())
    assert torch.equal(*after)


def test_parameters_that_are_cut_count_by_their_shards():
    """Fully sharded over 4 devices, four times as much fits."""
    mesh = spmdx.Mesh(range(8), (2, 4), ("pipe", "data"))
    spmdx.set_memory_limit(2 * bytes_of(Block()))
    model = Chain().to("spmdx")
    spmdx.fully_shard(model, mesh, axis="data")
    spmdx.nn.pipeline(model, mesh)
    ids = torch.zeros(ROWS, dtype=torch.long).to("spmdx")
    model(ids).sum().backward()
    assert blocks_by_stage(stages_of(model), 2) == [4, 4]
    assert spmdx.get_annotation(model.blocks[0].up.weight).spec != (None, None)


def test_what_was_recorded_before_the_first_call_is_not_refused():
    """The whole model is more than the limit, which stands again after the choice."""
    model = Chain().to("spmdx")
    spmdx.set_memory_limit("300 KiB")
    for weight in model.parameters():
        weight.data.mul_(2)
    spmdx.nn.pipeline(model, line_of(4))
    model(torch.zeros(1, dtype=torch.long).to("spmdx")).sum().backward()
    assert blocks_by_stage(stages_of(model), 4) == [2] * 4
    assert spmdx.get_memory_limit() == 300 * 2**10


class Checkpointed(Chain):
    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def test_checkpointed_blocks_keep_less():
    spmdx.set_memory_limit("1400 KiB")
    with pytest.raises(spmdx.ShardingError, match="more than the memory limit"):
        chosen(2, rows=256)
    _, stages = chosen(2, Checkpointed(), rows=256)
    assert blocks_by_stage(stages, 2) == [4, 4]


WAYS = {
    "compiled": lambda model, ids: torch.compile(model, backend="spmdx")(ids),
    "without gradients": torch.no_grad()(lambda model, ids: model(ids)),
    "inference": torch.inference_mode()(lambda model, ids: model(ids)),
    "by keyword": lambda model, ids: model(ids=ids),
    "autocast": torch.autocast("spmdx", torch.bfloat16)(lambda model, ids: model(ids)),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_call(way):
    model = Chain().to("spmdx")
    spmdx.nn.pipeline(model, line_of(4))
    WAYS[way](model, torch.zeros(ROWS, dtype=torch.long).to("spmdx"))
    assert blocks_by_stage(stages_of(model), 4) == [2] * 4
