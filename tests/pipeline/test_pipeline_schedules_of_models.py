# SPDX-License-Identifier: Apache-2.0
"""A schedule belongs to the model that was pipelined, in copies and files, too."""

import copy
import io
import re

import pytest
import spmdx
import torch
from messages import message_of
from torch import nn

WIDTH = 8


def pipelined(schedule, p=2, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to("spmdx")
    mesh = spmdx.Mesh(range(p), (p,), ("pipe",))
    cuts = [str(4 * stage // p) for stage in range(1, p)]
    return spmdx.nn.pipeline(model, mesh, cuts=cuts, schedule=schedule)


def backwards(*models, m=4):
    for i in range(m):
        x = torch.full((2, WIDTH), 0.1 * i).to("spmdx")
        sum(model(x).square().mean() for model in models).backward()


def schedule_of(model, m=4):
    backwards(model, m=m)
    spmdx.mark_step()
    return spmdx.explain().pipeline.schedule


def saved_and_loaded(thing, **how):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False, **how)


def test_each_model_has_its_own():
    one, other = pipelined("1f1b"), pipelined("gpipe")
    assert schedule_of(one) == "1f1b"
    assert schedule_of(other) == "gpipe"
    assert schedule_of(one) == "1f1b"


def test_a_table_for_other_microbatches_is_not_in_the_way_of_another_model():
    one = pipelined("1f1b")
    pipelined(spmdx.pipelines.Schedule.make("1f1b", 2, 3))
    assert schedule_of(one, m=4) == "1f1b"


COPIES = {"deepcopy": copy.deepcopy, "file": saved_and_loaded}


@pytest.mark.parametrize("copied", COPIES)
def test_copies_have_it(copied):
    again = COPIES[copied](pipelined("zb-h1"))
    assert schedule_of(again) == "zb-h1"


def test_it_outlives_other_cuts_of_the_parameters():
    mesh = spmdx.Mesh(range(4), (2, 2), ("pipe", "data"))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to("spmdx")
    spmdx.nn.pipeline(model, mesh, cuts=["2"], schedule="gpipe")
    spmdx.fully_shard(model, mesh, axis="data")
    assert schedule_of(model) == "gpipe"


def test_what_is_only_planned_is_put_back():
    model = pipelined("1f1b")
    with spmdx.plan_only():
        spmdx.nn.pipeline(
            model, spmdx.Mesh(range(2), (2,), ("pipe",)), cuts=["1"], schedule="gpipe"
        )
        assert schedule_of(model) == "gpipe"
    model.zero_grad()
    assert schedule_of(model) == "1f1b"


def test_cuts_that_wait_to_be_chosen_in_plan_only_wait_no_longer_after_it():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to("spmdx")
    with spmdx.plan_only():
        spmdx.nn.pipeline(model, spmdx.Mesh(range(2), (2,), ("pipe",)))
        assert schedule_of(model) == "1f1b"
    model.zero_grad()
    backwards(model)
    spmdx.mark_step()
    assert spmdx.explain().pipeline is None


def test_two_in_one_step_are_refused_and_nothing_is_lost():
    one, other = pipelined("1f1b"), pipelined("gpipe")
    backwards(one, other)
    said = message_of(spmdx.ShardingError, spmdx.mark_step)
    head, _, rest = said.partition(": one step uses models of two schedules, ")
    line = f"test_pipeline_schedules_of_models.py:{pipelined.__code__.co_firstlineno + 5}"
    assert re.fullmatch(r"step\.py:\d+|HERE", head) and rest == (
        f"'1f1b' (at {line}) and 'gpipe' (at {line}). Expected one for all stages of a mesh. Give "
        "spmdx.nn.pipeline the same schedule for both models, or end the step between them by "
        "spmdx.mark_step()."
    )
    mesh = spmdx.Mesh(range(2), (2,), ("pipe",))
    spmdx.nn.pipeline(other, mesh, cuts=["2"], schedule="1f1b")
    spmdx.mark_step()
    assert other[0].weight.grad.isfinite().all()


def test_a_model_that_waits_for_its_cuts_runs_on_the_cpu():
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to("spmdx")
    spmdx.nn.pipeline(model, spmdx.Mesh(range(2), (2,), ("pipe",)))
    x = torch.ones(2, WIDTH)
    wanted = model.cpu()(x)
    model.to("spmdx")
    torch.testing.assert_close(model(x.to("spmdx")).cpu(), wanted)
    assert spmdx.get_sharding(model[3].weight).stage == ("pipe", 1)


# ---- files of other meshes -----------------------------------------------------------------------


def trained(p, load=None, **how):
    """Parameters after steps of a model on ``p`` stages; begun from what another one has saved."""
    model = pipelined("1f1b", p, seed=0 if load is None else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if load is not None:
        state = saved_and_loaded(load, **how)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for _ in range(2):
        backwards(model)
        optimizer.step()
        optimizer.zero_grad()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def parameters_of(state):
    return {name: tensor.cpu() for name, tensor in state["model"].items()}


@pytest.mark.parametrize("map_location", [None, "spmdx", "cpu"])
@pytest.mark.parametrize("before, after", [(2, 4), (4, 2), (1, 4), (4, 1)])
def test_states_saved_on_other_stages_are_those_of_one_device(before, after, map_location):
    wanted = parameters_of(trained(1, trained(1)))
    got = parameters_of(trained(after, trained(before), map_location=map_location))
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6)


def sharded(ways):
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH).to("spmdx")
    mesh = spmdx.Mesh(range(ways), (ways,), ("data",))
    spmdx.mark_sharding(model.weight, mesh, ("data", None))
    return model


@pytest.mark.parametrize("before, after", [(2, 4), (4, 2)])
def test_a_loaded_annotation_yields_to_that_of_a_parameter(before, after):
    loaded = saved_and_loaded({"weight": sharded(before).weight.detach()})["weight"]
    assert spmdx.get_annotation(loaded).mesh.size() == before
    model = sharded(after)
    with torch.no_grad():
        difference = (model.weight - loaded).abs().max()
    assert difference.item() == 0
    assert spmdx.get_annotation(loaded) is None
    assert spmdx.get_annotation(model.weight).mesh.size() == after


def test_a_loaded_annotation_holds_where_nothing_else_is_said():
    loaded = saved_and_loaded({"weight": sharded(4).weight.detach()})["weight"]
    total = loaded.sum()
    assert spmdx.explain(total).count("all_reduce") == 1
    assert spmdx.get_annotation(loaded).mesh.size() == 4


def test_annotations_of_two_meshes_that_a_program_says_are_still_refused():
    loaded = saved_and_loaded({"weight": sharded(4).weight.detach()})["weight"]
    spmdx.mark_sharding(loaded, spmdx.Mesh(range(2), (2,), ("data",)), ("data", None))
    product = sharded(4).weight.detach() @ loaded
    with pytest.raises(spmdx.ShardingError, match="one step uses tensors of two meshes"):
        product.cpu()
