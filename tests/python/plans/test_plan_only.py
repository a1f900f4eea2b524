# SPDX-License-Identifier: Apache-2.0
"""plan_only plans steps for meshes that do not exist, allocates nothing, and leaves no trace."""

import inspect
import os
import resource

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn

if spmdx.runtime.global_runtime_device_count() != 8:
    spmdx.runtime.set_device_count(8)
FILE = os.path.basename(__file__)
REFUSED = r"plan_only\(\) planned the step.*Expected only its shape.*outside of plan_only"


def line_of(function, offset):
    return f"{FILE}:{inspect.getsourcelines(function)[1] + offset}"


def make_mesh(devices):
    return spmdx.Mesh(range(devices), (devices // 2, 2), ("data", "model"))


def mark(model, mesh):
    spmdx.mark_sharding(model[0].weight, mesh, ("model", None))
    spmdx.mark_sharding(model[2].weight, mesh, (None, "model"))


def make_model():
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))


def train(model, optimizer, mesh, rows=64):
    """A step with AdamW; what mark_step planned."""
    x = torch.ones(rows, 64).to("spmdx")
    spmdx.mark_sharding(x, mesh, ("data", None))
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    spmdx.mark_step()
    return spmdx.explain()


def steps_of(mesh, rows, device, steps=3):
    model = make_model().to("spmdx") if device == "cpu" else None
    if model is None:
        with torch.device("spmdx"):
            model = make_model()
    mark(model, mesh)
    spmdx.mark_step()
    optimizer = torch.optim.AdamW(model.parameters())
    return [train(model, optimizer, mesh, rows) for _ in range(steps)]


@pytest.mark.parametrize("rows", [64, 61])
@pytest.mark.parametrize("built_on", ["cpu", "spmdx"])
def test_a_plan_is_the_one_that_would_run(built_on, rows):
    mesh = make_mesh(8)
    ran = [r.to_dict() for r in steps_of(mesh, rows, built_on)]
    spmdx.sync(wait=True)
    spmdx.debug.reset_counters()
    spmdx._C.clear_cache()
    with spmdx.plan_only():
        planned = [r.to_dict() for r in steps_of(mesh, rows, built_on)]
    assert planned == ran
    assert ran[2]["collectives"]
    counted = spmdx.debug.counters()
    assert counted["steps"] == 0 and counted["plans_compiled"] > 0


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_every_mesh_size_plans_as_it_runs(devices):
    def total(mesh):
        x = spmdx.mark_sharding(torch.ones(10, 6).to("spmdx"), mesh, ("data", None))
        spmdx.mark_step()
        loss = (x * 2).softmax(-1).sum(0)
        spmdx.mark_step()
        return loss, spmdx.explain().to_dict()

    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    ran, ran_report = total(mesh)
    with spmdx.plan_only():
        planned, report = total(mesh)
        sharding = spmdx.get_sharding(planned)
    assert report == ran_report and sharding == spmdx.get_sharding(ran)
    assert torch.allclose(ran.cpu(), torch.full((6,), 10 / 6))


def test_a_layer_of_64_gib_on_16384_devices_takes_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with spmdx.plan_only():
        mesh = make_mesh(16384)
        with torch.device("spmdx"):
            model = nn.Linear(131072, 131072, bias=False)
            x = torch.randn(8192, 131072)
        spmdx.mark_sharding(model.weight, mesh, (None, "model"))
        spmdx.mark_sharding(x, mesh, ("data", "model"))
        spmdx.mark_step()
        y = model(x)
        spmdx.mark_step()
        report = spmdx.explain()
    assert [(c.kind, c.group_size, c.bytes) for c in report.collectives] == [
        ("all_reduce", 2, 131072 * 4)
    ]
    assert y.shape == (8192, 131072) and y.dtype == torch.float32
    assert spmdx.get_sharding(y).spec == ("data", None)
    assert 131072 * 65536 * 4 <= report.peak_bytes < 2.1 * 131072 * 65536 * 4
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) * 1024 < 256 << 20


def test_results_of_planned_steps_are_inputs_with_their_layout():
    with spmdx.plan_only():
        mesh = make_mesh(256)
        w = torch.zeros(512, 512, device="spmdx")
        spmdx.mark_sharding(w, mesh, ("model", "data"))
        spmdx.mark_step()
        assert spmdx.get_sharding(w).spec == ("model", "data")
        state = w * 2
        spmdx.mark_step()
        assert spmdx.get_sharding(state).spec == ("model", "data")
        again = state + w
        spmdx.mark_step()
        report = spmdx.explain()
    assert report.collectives == []
    assert [v.sharding for v in report.values] == ["f32[512@model, 512@data]"] * 3
    assert spmdx.get_sharding(again).spec == ("model", "data")


READS = {
    "item": lambda t: t.sum().item(),
    "print": lambda t: str(t),
    "cpu": lambda t: t.cpu(),
    "tolist": lambda t: t.tolist(),
    "bool": lambda t: bool(t.sum() > 0),
    "numpy": lambda t: t.cpu().numpy(),
    "copy to the host": lambda t: torch.empty(4).copy_(t),
    "nonzero": lambda t: torch.nonzero(t),
    "a mask": lambda t: t[t > 0],
    "local shards": lambda t: (
        spmdx.mark_sharding(t, spmdx.Mesh(range(4), (4,), ("data",)), ("data",)).local_shards
    ),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_values_are_refused_inside_at_the_line_that_wants_them(read):
    with spmdx.plan_only():
        t = torch.rand(4, device="spmdx")
        for _ in range(2):  # traced, then planned
            with pytest.raises(spmdx.ShardingError, match=rf"^{FILE}:\d+: .*{REFUSED}"):
                read(t)
            spmdx.mark_step()
        t += 1  # and nothing is broken
        spmdx.mark_step()


def test_values_are_refused_after_the_block_at_the_line_that_wants_them():
    with spmdx.plan_only():
        planned, uploaded = torch.ones(4, device="spmdx") + 1, torch.ones(4).to("spmdx")
        spmdx.mark_step()
        traced = planned * 2
    for tensor in (planned, uploaded, traced):
        with pytest.raises(spmdx.ShardingError) as error:
            tensor.sum()
        here = line_of(test_values_are_refused_after_the_block_at_the_line_that_wants_them, 7)
        assert str(error.value).startswith(f"{here}: the values of a tensor are wanted")
        with pytest.raises(spmdx.ShardingError, match=REFUSED):
            tensor.cpu()
        tensor.copy_(torch.arange(4.0))  # new values are as good as any
        assert tensor.tolist() == [0, 1, 2, 3]


def test_unrelated_work_goes_on_when_a_tensor_from_inside_is_refused():
    with spmdx.plan_only():
        made = torch.ones(4, device="spmdx")
    real = torch.ones(4).to("spmdx") + 1
    with pytest.raises(spmdx.ShardingError, match=REFUSED):
        made + real
    assert real.tolist() == [2, 2, 2, 2]


def test_tensors_from_before_keep_values_annotations_and_random_state():
    mesh = spmdx.Mesh(range(8), (8,), ("data",))
    marked = spmdx.mark_sharding(torch.arange(8.0).to("spmdx"), mesh, ("data",))
    plain, pending = torch.arange(8.0).to("spmdx"), torch.arange(8.0).to("spmdx") + 1
    view = plain[2:4]
    torch.manual_seed(3)
    want = torch.rand(4, device="spmdx").tolist()
    torch.manual_seed(3)
    with spmdx.plan_only():
        imagined = spmdx.Mesh(range(1024), (1024,), ("data",))
        spmdx.mark_sharding(plain, imagined, ("data",))
        for group in ((plain, view), (marked, pending)):
            for tensor in group:
                tensor.add_(torch.rand(tensor.shape, device="spmdx"))
            spmdx.mark_step()
        assert spmdx.get_sharding(plain).mesh == imagined
        spmdx.clear_sharding(marked)
        plain.mul_(2)
    assert torch.rand(4, device="spmdx").tolist() == want
    assert marked.tolist() == plain.tolist() == list(range(8))
    assert pending.tolist() == list(range(1, 9)) and view.tolist() == [2, 3]
    assert spmdx.get_annotation(marked).mesh == mesh
    assert spmdx.get_annotation(plain) is None
    view.add_(1)
    assert plain.tolist() == [0, 1, 3, 4, 4, 5, 6, 7]


def test_a_real_model_trains_on_as_if_its_step_had_not_been_planned():
    def losses(look_ahead):
        torch.manual_seed(0)
        model = make_model().to("spmdx")
        mark(model, make_mesh(8))
        found = []
        for step in range(3):
            if look_ahead and step == 1:
                with spmdx.plan_only():
                    assert train(model, torch.optim.AdamW(model.parameters()), make_mesh(8))
            x = torch.linspace(-1, 1, 16 * 64).view(16, 64).to("spmdx")
            loss = model(x).square().mean()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
            spmdx.mark_step()
            found.append(loss.item())
        return found

    assert losses(True) == losses(False)


def test_an_exception_inside_leaves_as_it_is_and_ends_the_mode():
    real = torch.arange(4.0).to("spmdx")
    with pytest.raises(KeyError, match="mine"), spmdx.plan_only():
        real.add_(1)
        made = real * 2
        raise KeyError("mine")
    assert real.tolist() == [0, 1, 2, 3]
    with pytest.raises(spmdx.ShardingError, match=REFUSED):
        made.cpu()
    assert (real + 1).tolist() == [1, 2, 3, 4]


def test_a_step_that_cannot_be_planned_raises_inside():
    real = torch.arange(8.0).to("spmdx")
    with spmdx.plan_only():
        a, b = torch.ones(8, device="spmdx"), torch.ones(8, device="spmdx")
        spmdx.mark_step()
        spmdx.mark_sharding(a, make_mesh(16), ("data",))
        spmdx.mark_sharding(b, make_mesh(32), ("data",))
        c = a + b
        with pytest.raises(spmdx.ShardingError, match="two meshes"):
            spmdx.mark_step()
        del c
    assert real.tolist() == list(range(8))


def test_blocks_nest():
    with spmdx.plan_only():
        with spmdx.plan_only():
            pass
        with pytest.raises(spmdx.ShardingError, match=REFUSED):
            torch.rand(4, device="spmdx").tolist()
    assert torch.ones(2, device="spmdx").tolist() == [1, 1]


def test_a_mesh_of_missing_devices_is_refused_outside_where_it_is_used():
    x = torch.ones(64).to("spmdx")
    with spmdx.plan_only():
        small, large = make_mesh(8), make_mesh(64)
    spmdx.mark_sharding(x, small, ("data",))
    with pytest.raises(spmdx.ShardingError, match=r"mark_sharding: the mesh wants device 8, but"):
        spmdx.mark_sharding(x, large, ("data",))
    with pytest.raises(spmdx.ShardingError, match=r"Mesh: the mesh wants device 8, but"):
        make_mesh(64)
    assert x.sum().item() == 64


def test_state_dicts_lend_shapes_and_a_loaded_model_runs_afterwards():
    with spmdx.plan_only():
        with torch.device("spmdx"):
            model = make_model()
        model.load_state_dict(make_model().state_dict())
        spmdx.mark_step()
    host = make_model()
    model.load_state_dict(host.state_dict())
    x = torch.randn(3, 64)
    assert torch.allclose(model(x.to("spmdx")).cpu(), host(x), atol=1e-6)


def test_a_report_names_causes_and_lines_of_a_planned_step():
    with spmdx.plan_only():
        mesh = make_mesh(4096)
        logits = torch.zeros(8192, 1000, device="spmdx").requires_grad_()
        target = torch.zeros(8192, dtype=torch.int64).to("spmdx")
        for t in (logits, target):
            spmdx.mark_sharding(t, mesh, ("data", *[None] * (t.dim() - 1)))
        spmdx.mark_step()
        loss = F.cross_entropy(logits, target)
        report = spmdx.explain(loss)
    assert report.mesh == "Mesh(data=2048, model=2)"
    assert report.collectives and all(c.source.startswith(FILE) for c in report.collectives)
    assert report.wire_bytes <= 16
