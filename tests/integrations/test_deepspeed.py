# SPDX-License-Identifier: Apache-2.0
"""A config of DeepSpeed does on devices what a plain loop with the same settings does."""

import copy
import json
import math
import pathlib

import launch
import pytest
import spmdx
import torch
from deepspeed_cases import ADAM, STEPS, WARMUP, WIDE, batches, loss_of, make, plain, train
from spmdx.integrations import deepspeed

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


def here(config, devices=8, rows=24, parts=1, **options):
    mesh = spmdx.Mesh(range(devices), (devices,), ("data",))
    engine, *_ = deepspeed.initialize(model=make(), config=config, mesh=mesh, **options)
    return engine, train(engine, batches(rows // parts, STEPS * parts))


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_stage_trains_as_one_device_and_cuts_what_it_says(stage, devices):
    config = {
        "train_batch_size": 24,
        "gradient_accumulation_steps": 1,
        "optimizer": ADAM,
        "gradient_clipping": 0.05,
        "zero_optimization": {"stage": stage},
    }
    engine, losses = here(config, devices)
    assert losses == pytest.approx(plain(clip=0.05), abs=1e-6)
    weight = engine.module[0].weight
    state = engine.optimizer.state[weight]["exp_avg"]
    held = [spmdx.get_sharding(each).spec for each in (weight, state)]
    cut = ("data", None)
    assert held == [cut if stage == 3 else (None, None), cut if stage else (None, None)]
    assert state.local_shards[0].data.shape[0] == (WIDE // devices if stage else WIDE)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gradients_add_up_over_micro_batches(stage):
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}
    config |= {"optimizer": ADAM, "zero_optimization": {"stage": stage}, "gradient_clipping": 0.5}
    engine, losses = here(config, 4, parts=3)
    assert losses == pytest.approx(plain(parts=3, clip=0.5), abs=1e-6)
    assert losses != pytest.approx(plain(parts=3, clip=0.5 / 3), abs=1e-6)
    assert (engine.train_batch_size(), engine.global_steps) == (24, STEPS)
    x, y = batches(8, 1)[0]
    engine.backward(loss_of(engine(x.to("spmdx")), y.to("spmdx")))
    engine.step()
    held = spmdx.get_sharding(engine.module[0].weight.grad)
    assert stage < 2 or held.spec == ("data", None)
    assert not engine.is_gradient_accumulation_boundary() and engine.global_steps == STEPS


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_bf16_steps_on_master_weights(stage):
    config = {"train_batch_size": 24, "bf16": {"enabled": True}, "optimizer": ADAM}
    engine, losses = here(config | {"zero_optimization": {"stage": stage}})
    assert losses == pytest.approx(plain(dtype=torch.bfloat16), abs=5e-3)
    assert losses != pytest.approx(plain(), abs=1e-6)  # it did round
    assert engine.module[0].weight.dtype == torch.bfloat16
    (master, *_) = engine.masters.apart
    assert master.dtype == torch.float32 and master in engine.optimizer.state
    assert spmdx.get_sharding(master).spec == (("data", None) if stage else (None, None))
    assert spmdx.get_sharding(engine.module[0].weight).spec[0] == ("data" if stage == 3 else None)


def test_float64_is_stepped_in_float64():
    config = {"train_batch_size": 24, "optimizer": ADAM}
    engine, *_ = deepspeed.initialize(model=make().double(), config=config)
    x, y = (each.double() for each in batches(24, 1)[0])
    engine.backward(loss_of(engine(x.to("spmdx")), y.to("spmdx")))
    engine.step()
    model = make().double()
    step = torch.optim.AdamW(model.parameters(), lr=0.02, betas=(0.8, 0.99), weight_decay=0.1)
    loss_of(model(x), y).backward()
    step.step()
    for own, want in zip(engine.module.parameters(), model.parameters(), strict=True):
        assert engine.optimizer.state[own]["exp_avg"].dtype == torch.float64
        assert torch.allclose(own.cpu(), want, atol=1e-9, rtol=0)


def test_fp16_skips_steps_that_overflow_and_halves_the_scale():
    half = {"enabled": True, "initial_scale_power": 20, "hysteresis": 1}
    engine, losses = here({"train_batch_size": 24, "fp16": half, "optimizer": ADAM})
    skipped = engine.skipped_steps
    assert 2 <= skipped < STEPS and engine.loss_scale == 2.0 ** (20 - skipped)
    assert losses == pytest.approx(plain(dtype=torch.float16, skip=skipped), abs=2e-3)
    want = plain(dtype=torch.float16)
    fixed = {"train_batch_size": 24, "optimizer": ADAM, "fp16": {"enabled": True, "loss_scale": 64}}
    engine, losses = here(fixed)
    assert losses == pytest.approx(want, abs=2e-3)
    assert (engine.skipped_steps, engine.loss_scale) == (0, 64)


def test_the_loss_scale_moves_as_overflows_come():
    from spmdx._integrations.deepspeed.config import LossScale
    from spmdx._integrations.deepspeed.optimizer import Scaler

    scaler, seen = Scaler(LossScale(power=4, window=2, hysteresis=2)), []
    for overflow in (True, True, False, False, True, True, True, False):
        scaler.update(overflow)
        seen.append(scaler.scale)
    assert seen == [16, 8, 8, 16, 16, 8, 4, 4]
    scaler = Scaler(LossScale(power=0, hysteresis=1))
    with pytest.raises(OverflowError, match="least loss scale"):
        scaler.update(True)


def rates(config, count=8):
    engine, *_ = deepspeed.initialize(
        model=make(), config={"train_batch_size": 8, "optimizer": ADAM, "scheduler": config}
    )
    seen = []
    for _ in range(count):
        seen += engine.get_lr()
        engine.lr_scheduler.step()
    return seen


def schedule(kind, **params):
    return {"type": kind, "params": params}


def test_rates_are_those_of_the_formulas():
    log = [0.0, 0.0] + [0.05 * math.log(n) / math.log(4) for n in (2, 3, 4)] + [0.05] * 3
    assert rates(WARMUP) == pytest.approx(log)
    linear = schedule("WarmupDecayLR", total_num_steps=6, warmup_num_steps=2, warmup_type="linear")
    assert rates(linear) == pytest.approx([0, 0, 5e-4, 1e-3, 7.5e-4, 5e-4, 2.5e-4, 0])
    cosine = schedule("WarmupCosineLR", total_num_steps=5, warmup_num_steps=2, cos_min_ratio=0.1)
    wave = [0.02 * (0.1 + 0.9 * (1 + math.cos(math.pi * n / 3)) / 2) for n in (1, 2, 3, 3, 3)]
    assert rates(cosine) == pytest.approx([0, 0, 0.02, *wave])
    test = schedule("LRRangeTest", lr_range_test_min_lr=0.1, lr_range_test_step_size=2)
    assert rates(test, 4) == pytest.approx([0.1, 0.15, 0.2, 0.25])


def test_a_schedule_follows_the_steps():
    config = {"train_batch_size": 24, "optimizer": ADAM, "scheduler": WARMUP}
    log = [0.0, 0.0] + [0.05 * math.log(n) / math.log(4) for n in (2, 3, 4, 4)]
    assert here(config)[1] == pytest.approx(plain(rate=log.__getitem__), abs=1e-6)


OPTIMIZERS = [
    ("Adam", {"adam_w_mode": False}, lambda p: torch.optim.Adam(p, lr=0.01)),
    ("Adam", {}, lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0)),
    ("AdamW", {"torch_adam": True}, lambda p: torch.optim.AdamW(p, lr=0.01)),
    ("SGD", {"momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)),
    ("RMSprop", {}, lambda p: torch.optim.RMSprop(p, lr=0.01)),
]


@pytest.mark.parametrize(("kind", "params", "make_optimizer"), OPTIMIZERS)
def test_optimizers_are_those_of_the_formula(kind, params, make_optimizer):
    said = {"type": kind, "params": {"lr": 0.01, **params}}
    losses = here({"train_batch_size": 24, "optimizer": said})[1]
    assert losses == pytest.approx(plain(make_optimizer=make_optimizer), abs=1e-6)


def test_own_optimizer_schedule_and_marks_are_kept(tmp_path):
    mesh = spmdx.Mesh(range(8), (2, 4), ("data", "model"))
    model = make().to("spmdx")
    spmdx.mark_sharding(model[0].weight, mesh, ("model", None))
    spmdx.mark_sharding(model[2].weight, mesh, (None, "model"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps({"train_batch_size": 24, "zero_optimization": {"stage": 2}}))
    engine, same, _, schedule = deepspeed.initialize(
        model=model,
        optimizer=optimizer,
        config=str(path),
        mesh=mesh,
        lr_scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5),
    )
    losses = train(engine, batches(24, STEPS))
    want = plain(make_optimizer=lambda p: torch.optim.SGD(p, lr=0.1), rate=lambda n: 0.1 * 0.5**n)
    assert losses == pytest.approx(want, abs=1e-6)
    assert same is optimizer and schedule.get_last_lr() == [0.1 * 0.5**STEPS]
    assert model[0].weight.partition_spec == ("model", None)


def test_a_loader_gives_global_batches():
    data = [x[0] for x, _ in batches(1, 26)]
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    config = {"train_micro_batch_size_per_gpu": 2, "dataloader_drop_last": True}
    loader = deepspeed.initialize(model=make(), training_data=data, config=config, mesh=mesh)[2]
    seen = list(loader)
    assert [len(x) for x in seen] == [8, 8, 8] and seen[0].partition_spec == ("data", None)
    assert len({tuple(row) for x in seen for row in x.tolist()}) == 24


@pytest.mark.parametrize("precision", [{}, {"bf16": {"enabled": True}}])
@pytest.mark.parametrize("stages", [(0, 0), (1, 3), (3, 2)])
def test_saving_and_going_on_with_another_stage(stages, precision, tmp_path):
    config = {"train_batch_size": 24, "optimizer": ADAM, "scheduler": WARMUP} | precision
    configs = [config | {"zero_optimization": {"stage": stage}} for stage in stages]
    data = batches(24, STEPS)
    engine, *_ = deepspeed.initialize(model=make(), config=configs[0])
    train(engine, data[:3])
    assert engine.load_checkpoint(tmp_path) == (None, {})
    engine.save_checkpoint(tmp_path, client_state={"epoch": 2})
    want = train(engine, data[3:])
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    torch.manual_seed(9)
    other, *_ = deepspeed.initialize(model=copy.deepcopy(make()), config=configs[1], mesh=mesh)
    path, told = other.load_checkpoint(tmp_path)
    assert path == str(tmp_path / "global_step3") and told == {"epoch": 2}
    assert (other.global_steps, other.get_lr()) == (
        3,
        pytest.approx([0.05 * math.log(3) / math.log(4)]),
    )
    assert train(other, data[3:]) == pytest.approx(want, abs=1e-6 if not precision else 5e-3)


def state_on_hosts(engine):
    """Whether each tensor that the optimizer keeps lies there."""
    held = (v for state in engine.optimizer.state.values() for v in state.values())
    return {spmdx.get_sharding(v).on_host for v in held if torch.is_tensor(v) and v.dim()}


@pytest.mark.parametrize("precision", [{}, {"bf16": {"enabled": True}}])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_state_on_hosts(stage, precision, tmp_path):
    """Trains as without it, is saved, and goes on with and without it."""
    config = {"train_batch_size": 24, "optimizer": ADAM, "gradient_clipping": 0.05} | precision
    near = config | {"zero_optimization": {"stage": stage}}
    said = {"device": "cpu", "pin_memory": True, "ratio": 1.0, "buffer_count": 4}
    far = config | {"zero_optimization": {"stage": stage, "offload_optimizer": said}}
    data = batches(24, STEPS)
    engine, *_ = deepspeed.initialize(model=make(), config=far)
    losses = train(engine, data[:3])
    assert state_on_hosts(engine) == {True}
    engine.save_checkpoint(tmp_path)
    losses += train(engine, data[3:])
    assert losses == pytest.approx(here(near)[1], abs=1e-6)
    for again, on_host in (far, True), (near, False):
        other, *_ = deepspeed.initialize(model=make(), config=again)
        other.load_checkpoint(tmp_path)
        assert train(other, data[3:]) == pytest.approx(losses[3:], abs=1e-6)
        assert state_on_hosts(other) == {on_host}


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path):
    config = {"train_batch_size": 24, "optimizer": ADAM}
    engine, *_ = deepspeed.initialize(model=make(), config={"train_batch_size": 24})
    engine.save_checkpoint(tmp_path, "a")
    other, *_ = deepspeed.initialize(model=make(), config=config)
    with pytest.raises(spmdx.checkpoint.CheckpointError, match="only one side has optimizer"):
        other.load_checkpoint(tmp_path, "a")
    assert other.load_checkpoint(tmp_path, "a", load_module_only=True)[1] == {}
    bigger = torch.nn.Sequential(*make(), torch.nn.Linear(5, 5))
    other, *_ = deepspeed.initialize(model=bigger, config={"train_batch_size": 24})
    with pytest.raises(spmdx.checkpoint.CheckpointError, match="module.3.weight"):
        other.load_checkpoint(tmp_path, "a")
    other.load_checkpoint(tmp_path, "a", load_module_strict=False)
    with pytest.raises(spmdx.checkpoint.CheckpointError, match="what JSON knows"):
        engine.save_checkpoint(tmp_path, client_state={"tensor": torch.ones(1)})


def offload(said, stage=2):
    return {"train_batch_size": 8, "zero_optimization": {"stage": stage, "offload_optimizer": said}}


BAD = [
    ({}, "lacks train_batch_size and train_micro_batch_size_per_gpu"),
    ({"train_batch_size": 12}, "train_batch_size is 12, and .* is 1 · 1 · 8"),
    ({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 3}, "is 3 · 0 · 8"),
    ({"train_batch_size": -8}, "train_batch_size is -8"),
    ({"train_batch_size": 8, "train_batchsize": 8}, "Did you mean 'train_batch_size'"),
    ({"train_batch_size": "auto"}, "train_batch_size is 'auto'"),
    ({"train_batch_size": 8, "zero_optimization": {"stage": 4}}, "stage is 4"),
    (offload({"device": "nvme", "pin_memory": True}), "device is 'nvme'. Expected 'cpu' or 'none'"),
    (offload({"device": "cpu", "nvme_path": "/disk"}), "nvme_path is '/disk'. Expected it off"),
    (offload({"pin_memory": True}), "device is None. Expected 'cpu' or 'none'"),
    (offload({"device": "cpu", "ratio": 0.5}), "ratio is 0.5. Expected 1.0"),
    (offload({"device": "cpu", "pin_memroy": True}), "Did you mean 'pin_memory'"),
    (offload({"device": "cpu"}, stage=0), 'the stage is 0. .*Write "stage": 1'),
    (offload("cpu"), "offload_optimizer is 'cpu'. Expected an object"),
    (
        {"train_batch_size": 8, "zero_optimization": {"offload_param": {"device": "cpu"}}},
        "zero_optimization.offload_param is .*Cut them by more devices",
    ),
    ({"train_batch_size": 8, "fp16": {"enabled": True}, "bf16": {"enabled": True}}, "both enabled"),
    ({"train_batch_size": 8, "fp16": {"enable": True}}, "fp16.enable is no key"),
    ({"train_batch_size": 8, "fp16": True}, "fp16 is True. Expected an object"),
    ({"train_batch_size": 8, "zero_optimization": 2}, "zero_optimization is 2. Expected an obj"),
    ({"train_batch_size": 8, "optimizer": "Adam"}, "optimizer is 'Adam'. Expected an object"),
    (
        {"train_batch_size": 8, "optimizer": {"type": "Adam", "params": [1]}},
        r"optimizer.params is \[1\]",
    ),
    ({"train_batch_size": 8, "gradient_clipping": "x"}, "gradient_clipping is 'x'"),
    ({"train_batch_size": 8, "wall_clock_breakdown": True}, "wall_clock_breakdown is True"),
    (
        {"train_batch_size": 8, "optimizer": {"type": "OneBitAdam"}},
        "optimizer.type is 'OneBitAdam'",
    ),
    ({"train_batch_size": 8, "optimizer": {"type": "Lion"}}, "optimizer.type is 'Lion'"),
    ({"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"rate": 1}}}, "'rate'"),
    (
        {"train_batch_size": 8, "optimizer": ADAM, "scheduler": {"type": "OneCycle"}},
        "scheduler.type is 'OneCycle'",
    ),
    (
        {"train_batch_size": 8, "optimizer": ADAM, "scheduler": {"type": "WarmupDecayLR"}},
        "lacks total_num_steps",
    ),
    ("nowhere.json", "'nowhere.json' cannot be read"),
    (None, "the config is a NoneType"),
]


@pytest.mark.parametrize(("config", "said"), BAD)
def test_what_is_wrong_or_not_done_is_said(config, said):
    with pytest.raises(spmdx.ShardingError, match=said):
        deepspeed.initialize(model=make(), config=config)


def test_keys_that_are_off_pass_and_those_of_the_planner_are_named():
    config = {"train_batch_size": 8, "wall_clock_breakdown": False, "steps_per_print": 0}
    config |= {"gradient_clipping": None, "fp16": None}
    zero = {"stage": 2, "overlap_comm": True, "offload_param": {"device": "none"}}
    zero |= {"offload_optimizer": {"device": "none"}}
    with pytest.warns(UserWarning, match="zero_optimization.overlap_comm, which the planner"):
        deepspeed.initialize(model=make(), config=config | {"zero_optimization": zero})


def test_two_processes_of_two_devices(tmp_path):
    player = str(pathlib.Path(__file__).parent / "players" / "deepspeed_train.py")
    for said in launch.run(player, 2, 2, str(tmp_path)):
        losses = json.loads(said.splitlines()[-1])
        assert losses["whole"] == pytest.approx(plain(clip=0.05), abs=1e-6)
        assert losses["resumed"] == pytest.approx(plain(clip=0.05)[3:], abs=1e-6)
