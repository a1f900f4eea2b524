# SPDX-License-Identifier: Apache-2.0
"""Training goes on from a checkpoint as if it had not stopped."""

import pytest
import spmdx
import torch
from checkpoints import mesh_of
from messages import eight_devices
from spmdx.checkpoint import CheckpointError, load, rng_state, save

eight_devices()

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "Adam, its rate a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, centered=True),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
    "two groups": lambda p: torch.optim.Adam([{"params": p[:2], "lr": 0.1}, {"params": p[2:]}]),
}


class Run:
    """A model with dropout and batch norm, an optimizer and a schedule."""

    def __init__(self, seed, make="AdamW", spec=("a", "b")):
        torch.manual_seed(seed)
        layers = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5)
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 4)).to("spmdx")
        spmdx.mark_sharding(self.model[0].weight, mesh_of(8), spec)
        self.optimizer = OPTIMIZERS[make](list(self.model.parameters()))
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 5], 0.5)

    def steps(self, count):
        losses = []
        for _ in range(count):
            x = spmdx.mark_sharding(torch.randn(16, 8).to("spmdx"), mesh_of(8), ("a", None))
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.schedule.step()
            losses.append(loss.item())
        return losses

    def objects(self):
        return {"model": self.model, "optimizer": self.optimizer, "rng": rng_state()}

    def state(self):
        return {**self.objects(), "schedule": self.schedule}


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_new_run_goes_on_where_the_old_one_was(make, tmp_path):
    run = Run(0, make)
    run.steps(3)
    save(run.state(), tmp_path)
    expected = run.steps(4)
    again = Run(1, make)
    load(again.state(), tmp_path)
    assert again.steps(4) == expected


def test_it_goes_on_with_another_spec(tmp_path):
    run = Run(0)
    run.steps(3)
    save(run.state(), tmp_path)
    expected = run.steps(4)
    again = Run(1, spec=(None, "a"))
    load(again.state(), tmp_path)
    moments = again.optimizer.state[again.model[0].weight]
    assert spmdx.get_sharding(moments["exp_avg"]).spec == (None, "a")
    assert torch.allclose(torch.tensor(again.steps(4)), torch.tensor(expected), atol=1e-6)


def test_a_run_goes_back_in_place(tmp_path):
    run = Run(0)
    run.steps(2)
    save(run.state(), tmp_path)
    expected = run.steps(3)
    parameters, moments = list(run.model.parameters()), run.optimizer.state
    moments = [moments[p]["exp_avg"] for p in parameters]
    load(run.state(), tmp_path)
    assert list(map(id, run.model.parameters())) == list(map(id, parameters))
    assert [id(run.optimizer.state[p]["exp_avg"]) for p in parameters] == list(map(id, moments))
    assert run.steps(3) == expected


def test_state_dicts_do_as_well_as_objects(tmp_path):
    run = Run(0)
    run.steps(2)
    save({name: thing.state_dict() for name, thing in run.state().items()}, tmp_path)
    expected = run.steps(3)
    again = Run(1)
    again.steps(1)  # now the optimizer's state_dict() has all entries
    state = {name: thing.state_dict() for name, thing in again.state().items()}
    load(state, tmp_path)
    for name, thing in again.state().items():
        thing.load_state_dict(state[name])
    assert again.steps(3) == expected


def test_an_optimizer_goes_back_to_before_its_first_step(tmp_path):
    run = Run(0)
    save(run.objects(), tmp_path)
    expected = run.steps(2)
    load({"schedule": run.schedule, **run.objects()}, tmp_path, strict=False)
    assert len(run.optimizer.state) == 0
    run.schedule.last_epoch = 0
    assert run.steps(2) == expected


def test_an_optimizer_of_other_parameters_is_refused(tmp_path):
    run = Run(0)
    run.steps(1)
    save({"optimizer": run.optimizer}, tmp_path)
    fewer = torch.optim.AdamW(list(run.model.parameters())[:3])
    with pytest.raises(CheckpointError, match="has optimizer.state.3.* the state of parameter 3"):
        load({"optimizer": fewer}, tmp_path)
    groups = torch.optim.AdamW([{"params": [p]} for p in run.model.parameters()])
    with pytest.raises(CheckpointError, match="has 1 parameter groups for optimizer, .* 6"):
        load({"optimizer": groups}, tmp_path)


def test_random_numbers_go_on(tmp_path):
    torch.manual_seed(3)
    torch.rand(5), torch.rand(5, device="spmdx")
    save({"rng": rng_state()}, tmp_path)

    def draw():
        return torch.rand(4).tolist(), torch.rand(4, device="spmdx").tolist()

    expected = draw()
    draw()
    load({"rng": rng_state()}, tmp_path)
    assert draw() == expected
