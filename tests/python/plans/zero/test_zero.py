# SPDX-License-Identifier: Apache-2.0
"""ZeRO by annotations: numbers of one device, and what is sent and held by its formulas."""

import copy
import functools
import io

import pytest
import spmdx
import torch
from messages import eight_devices
from torch import nn

WIDTH, LAYERS, ROWS, STEPS = 24, 3, 48, 3

OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "AdamW, one by one": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
}


@pytest.fixture(autouse=True)
def devices():
    eight_devices()


def net(width=WIDTH, dtype=torch.float64):
    torch.manual_seed(0)
    layers = (m for _ in range(LAYERS) for m in (nn.Linear(width, width), nn.Tanh()))
    return nn.Sequential(*layers).to(dtype)


def train(model, optimizer, device, mesh=None, m=1, clip=False, steps=STEPS, seed=1):
    """Gradients of the last step, before it; the norms."""
    generator = torch.Generator().manual_seed(seed)
    width, dtype = model[0].weight.shape[1], model[0].weight.dtype
    norms = []
    for _ in range(steps):
        for _ in range(m):
            x = torch.randn(ROWS // m, width, generator=generator, dtype=dtype).to(device)
            if mesh is not None:
                spmdx.mark_sharding(x, mesh, ("data", None))
            (model(x).square().mean() / m).backward()
        if clip:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01).detach())
        optimizer.step()
        gradients = [p.grad.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        if device == "spmdx":
            spmdx.mark_step()
    return [t.cpu() for t in (*gradients, *norms)]


def mesh_of(n):
    return spmdx.Mesh(range(n), (n,), ("data",))


def state_of(model, optimizer):
    """All numbers of both, on the CPU."""
    held = [t.detach().cpu() for t in model.state_dict().values()]
    for state in optimizer.state_dict()["state"].values():
        held += [v.detach().cpu() for v in state.values() if isinstance(v, torch.Tensor)]
    return held


@functools.cache
def plain(width, kind, m, clip):
    model = net(width)
    optimizer = OPTIMIZERS[kind](model.parameters())
    return train(model, optimizer, "cpu", m=m, clip=clip), state_of(model, optimizer)


@pytest.mark.parametrize("m, clip", [(1, False), (1, True), (3, False), (3, True)])
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("n, width", [(2, 24), (4, 24), (8, 24), (3, 25), (4, 26), (8, 27)])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_numbers_are_those_of_one_device(stage, n, width, kind, m, clip):
    model = net(width).to("spmdx")
    optimizer = OPTIMIZERS[kind](model.parameters())
    spmdx.nn.zero(model, optimizer, mesh_of(n), stage=stage)
    got = train(model, optimizer, "spmdx", mesh_of(n), m, clip), state_of(model, optimizer)
    for here, there in zip(got, plain(width, kind, m, clip), strict=True):
        for one, other in zip(here, there, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    shares = {0: 1, 1: n, 2: n, 3: n}
    first = next(iter(optimizer.state.values()))
    like = [v for v in first.values() if torch.is_tensor(v) and v.shape == model[0].weight.shape]
    for value in like:
        assert value.local_shards[0].data.numel() == -(-width // shares[stage]) * width
    weight = model[0].weight
    held = weight.local_shards[0].data.numel() if stage == 3 else weight.numel()
    assert held == (-(-width // n) * width if stage == 3 else width * width)


def last_report(stage, n, m=1, width=64):
    """Of a step that repeats: even parts, and so many rows that weights are cheapest to send."""
    model = net(width, torch.float32).to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters())
    spmdx.nn.zero(model, optimizer, mesh_of(n), stage=stage)
    spmdx._C.set_checks(memory=True)
    try:
        for _ in range(3):
            for _ in range(m):
                x = spmdx.mark_sharding(
                    torch.ones(4096, width).to("spmdx"), mesh_of(n), ("data", None)
                )
                model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            spmdx.sync(wait=True)
        return model, optimizer, spmdx.explain()
    finally:
        spmdx._C.set_checks()


def kinds_of(report):
    return {c.kind for c in report.collectives}


def bytes_of(report, kind):
    return sum(c.bytes * c.count for c in report.collectives if c.kind == kind)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("stage", [1, 2])
def test_gradients_are_scattered_and_parameters_gathered_once(stage, n):
    model, optimizer, report = last_report(stage, n)
    size = sum(p.numel() * 4 for p in model.parameters())
    assert kinds_of(report) == {"reduce_scatter", "all_gather"}
    assert bytes_of(report, "reduce_scatter") == size * (n - 1) // n
    assert bytes_of(report, "all_gather") == size * (n - 1) // n
    assert report.count("all_gather") == 1
    assert report.count("reduce_scatter") == 1
    assert report.wire_bytes == spmdx.nn.zero_report(model, optimizer, n).stages[stage].wire


@pytest.mark.parametrize("n", [2, 4, 8])
def test_parameters_in_parts_are_gathered_where_they_are_read(n):
    """Of the second gather of the formula what was kept, or is not read again, is not sent."""
    model, optimizer, report = last_report(3, n)
    size = sum(p.numel() * 4 for p in model.parameters())
    assert kinds_of(report) == {"reduce_scatter", "all_gather"}
    assert bytes_of(report, "reduce_scatter") == size * (n - 1) // n
    gathered = bytes_of(report, "all_gather")
    assert size * (n - 1) // n <= gathered <= 2 * size * (n - 1) // n
    assert report.wire_bytes <= spmdx.nn.zero_report(model, optimizer, n).stages[3].wire


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_is_kept_is_what_the_formulas_say(stage, n):
    model, optimizer, report = last_report(stage, n)
    found = spmdx.nn.zero_report(model, optimizer, n)
    formula, planned = found.stages[stage], found.stages[4]
    counts = 2 * LAYERS * 4  # how often each was stepped, a number for each parameter
    assert planned.parameters == formula.parameters
    assert planned.optimizer_state == formula.optimizer_state
    assert max(report.memory.measured) == pytest.approx(report.peak_bytes, rel=0.02)
    kept = formula.parameters + formula.optimizer_state + counts
    assert spmdx.debug.local_bytes([model, optimizer]) == kept


@pytest.mark.parametrize("stage, cut", [(1, False), (2, True), (3, True)])
def test_gradients_that_are_kept_between_steps(stage, cut):
    model, mesh = net().to("spmdx"), mesh_of(4)
    optimizer = torch.optim.AdamW(model.parameters())
    spmdx.nn.zero(model, optimizer, mesh, stage=stage)
    for _ in range(2):
        x = spmdx.mark_sharding(torch.ones(8, WIDTH).double().to("spmdx"), mesh, ("data", None))
        model(x).sum().backward()
        spmdx.mark_step()
    held = model[0].weight.grad.local_shards[0].data.numel() if cut else WIDTH * WIDTH
    assert held == WIDTH * WIDTH // (4 if cut else 1)
    known = spmdx.get_sharding(model[0].weight.grad)
    assert cut == (known is not None and "data" in known.spec)


def saved(model, optimizer):
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return torch.load(file)


def made(stage, n):
    model = net().to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if stage:
        spmdx.nn.zero(model, optimizer, mesh_of(n), stage=stage)
    return model, optimizer


@pytest.mark.parametrize("after", [(0, 1), (1, 4), (2, 8), (3, 3), (3, 4)])
@pytest.mark.parametrize("before", [(0, 1), (1, 4), (2, 2), (3, 4)])
def test_a_state_of_each_stage_loads_into_each(before, after):
    mesh = mesh_of(before[1])
    model, optimizer = made(*before)
    train(model, optimizer, "spmdx", mesh)
    state = saved(model, optimizer)
    other, its = made(*after)
    other.load_state_dict(state["model"])
    its.load_state_dict(state["optimizer"])
    mesh = mesh_of(after[1])
    train(other, its, "spmdx", mesh, seed=2)
    reference = net()
    alone = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    train(reference, alone, "cpu")
    train(reference, alone, "cpu", seed=2)
    for one, wanted in zip(state_of(other, its), state_of(reference, alone), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-9, atol=1e-9)
    if after[0]:
        value = its.state[other[0].weight]["exp_avg"]
        assert "data" in spmdx.get_sharding(value).spec


def test_a_later_call_replaces_the_stage():
    model, optimizer = made(3, 4)
    train(model, optimizer, "spmdx", mesh_of(4))
    for stage in (1, 3, 2):
        spmdx.nn.zero(model, optimizer, mesh_of(4), stage=stage)
        train(model, optimizer, "spmdx", mesh_of(4))
        weight = model[0].weight
        assert weight.partition_spec == (("data", None) if stage == 3 else (None, None))
        assert spmdx.get_sharding(optimizer.state[weight]["exp_avg"]).spec == ("data", None)


def test_what_other_axes_cut_stays():
    mesh = spmdx.Mesh(range(8), (2, 4), ("model", "data"))
    model = net().to("spmdx")
    spmdx.mark_sharding(model[0].weight, mesh, ("model", None))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    spmdx.nn.zero(model, optimizer, mesh, stage=1)
    got = train(model, optimizer, "spmdx", mesh)
    reference = net()
    alone = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    for one, other in zip(got, train(reference, alone, "cpu"), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    state = optimizer.state[model[0].weight]["exp_avg"]
    assert model[0].weight.partition_spec == ("model", None)
    assert spmdx.get_sharding(state).spec == ("model", "data")


def test_small_parameters_stay_whole():
    model = net().to("spmdx")
    optimizer = torch.optim.AdamW(model.parameters())
    spmdx.nn.zero(model, optimizer, mesh_of(4), stage=3, min_size=WIDTH + 1)
    train(model, optimizer, "spmdx", mesh_of(4))
    assert model[0].bias.partition_spec == (None,)
    assert model[0].weight.partition_spec == ("data", None)
    assert spmdx.get_sharding(optimizer.state[model[0].bias]["exp_avg"]).spec == (None,)


def test_frozen_parameters_are_cut_in_stage_3_alone():
    for stage, spec in (1, (None, None)), (2, (None, None)), (3, ("data", None)):
        model = net().to("spmdx")
        model[2].requires_grad_(False)
        optimizer = torch.optim.AdamW(model.parameters())
        spmdx.nn.zero(model, optimizer, mesh_of(4), stage=stage)
        x = torch.ones(8, WIDTH).double().to("spmdx")
        model(x).sum().backward()
        optimizer.step()
        spmdx.mark_step()
        assert model[2].weight.partition_spec == spec
        assert model[2].weight not in optimizer.state


class Own(torch.optim.Optimizer):
    """Keeps a mean of gradients, and one for each row."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state.setdefault("mean", torch.zeros_like(p)).lerp_(p.grad, 0.1)
                rows = p.grad.flatten(1).mean(1) if p.dim() > 1 else p.grad
                state.setdefault("rows", torch.zeros_like(rows)).lerp_(rows, 0.1)
                p.sub_(state["mean"] * group["lr"])


def test_another_optimizer_is_told_of_and_its_state_is_cut_by_shape():
    model = net().to("spmdx")
    optimizer = Own(model.parameters())
    with pytest.warns(UserWarning, match="zero: Own is no optimizer of PyTorch"):
        spmdx.nn.zero(model, optimizer, mesh_of(4))
    train(model, optimizer, "spmdx", mesh_of(4))
    state = optimizer.state[model[0].weight]
    assert spmdx.get_sharding(state["mean"]).spec == ("data", None)
    assert spmdx.get_annotation(state["rows"]) is None


def test_copies_of_the_model_are_not_cut():
    model, optimizer = made(2, 4)
    train(model, optimizer, "spmdx", mesh_of(4))
    again = copy.deepcopy(model)
    again(torch.ones(4, WIDTH).double().to("spmdx")).sum().backward()
    spmdx.mark_step()
    assert spmdx.get_annotation(again[0].weight.grad) is None
