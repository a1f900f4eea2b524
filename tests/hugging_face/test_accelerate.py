# SPDX-License-Identifier: Apache-2.0
"""A loop written for accelerate runs on 8 devices as it does on the CPU."""

import accelerate
import pytest
import spmdx
import torch
import torch.nn.functional as F
from accelerate import FullyShardedDataParallelPlugin, ParallelismConfig
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DataLoaderConfiguration
from looped import loop, network, parts
from spmdx.integrations.accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from trained import farthest

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)


@pytest.fixture(autouse=True)
def _no_state_is_left():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def start(kind, **options):
    AcceleratorState._reset_state(reset_partial_state=True)
    return kind(cpu=True, **options) if kind is accelerate.Accelerator else kind(**options)


FSDP = FullyShardedDataParallelPlugin


@pytest.mark.parametrize(
    "options, axes, tolerance",
    [
        ({}, {"dp_replicate": 8}, 1e-6),
        ({"gradient_accumulation_steps": 3}, {"dp_replicate": 8}, 1e-6),
        ({"mixed_precision": "bf16"}, {"dp_replicate": 8}, 2e-2),
        ({"fsdp_plugin": FSDP(fsdp_version=2)}, {"dp_shard": 8}, 1e-6),
        ({"fsdp_plugin": FSDP(sharding_strategy="NO_SHARD")}, {"dp_replicate": 8}, 1e-6),
        (
            {"parallelism_config": ParallelismConfig(dp_replicate_size=2, dp_shard_size=4)},
            {"dp_replicate": 2, "dp_shard": 4},
            1e-6,
        ),
        ({"dataloader_config": DataLoaderConfiguration(use_seedable_sampler=True)}, None, 1e-6),
    ],
    ids=lambda value: None if isinstance(value, float) else str(value)[:60],
)
def test_losses_and_weights_are_those_of_the_cpu(options, axes, tolerance):
    theirs = {k: v for k, v in options.items() if k not in ("fsdp_plugin", "parallelism_config")}
    want, expected, *_ = loop(start(accelerate.Accelerator, **theirs))
    accelerator = start(Accelerator, **options)
    losses, model, *_ = loop(accelerator)
    assert farthest(want, losses) < tolerance
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        assert (a.detach().cpu() - b).abs().max() < 10 * tolerance
    if axes is not None:
        assert accelerator.mesh.shape() == axes
        cut = "dp_shard" if "dp_shard" in axes else None
        assert model[0].weight.partition_spec == (cut, None)


@pytest.mark.parametrize("plugin", [None, FSDP(fsdp_version=2)], ids=["data", "fsdp"])
def test_a_state_is_saved_and_loaded(plugin, tmp_path):
    accelerator = start(Accelerator, fsdp_plugin=plugin)
    _, model, optimizer, loader, scheduler = loop(accelerator, epochs=1)
    accelerator.save_state(str(tmp_path / "state"))

    def go_on(accelerator, model, optimizer, loader, scheduler):
        losses = []
        for x, y in accelerator.skip_first_batches(loader, 2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            losses.append(loss.detach())
            assert x.device.type == "cpu" or x.partition_spec[0] is not None
        numbers = torch.rand(3, device=accelerator.device)  # after the order of the loader
        return [loss.item() for loss in losses], numbers.tolist()

    want = go_on(accelerator, model, optimizer, loader, scheduler)
    accelerator = start(Accelerator, fsdp_plugin=plugin)
    again = accelerator.prepare(*parts())
    torch.manual_seed(77)
    accelerator.load_state(str(tmp_path / "state"))
    losses, numbers = go_on(accelerator, *again)
    assert farthest(want[0], losses) < 1e-6 and numbers == want[1]

    # Plain accelerate reads the same files.
    accelerator = start(accelerate.Accelerator)
    there = accelerator.prepare(*parts())
    accelerator.load_state(str(tmp_path / "state"))
    assert farthest(want[0], go_on(accelerator, *there)[0]) < 1e-6


def test_a_model_is_saved_whole(tmp_path):
    accelerator = start(Accelerator, fsdp_plugin=FSDP(fsdp_version=2))
    model = accelerator.prepare(network())
    accelerator.save_model(model, str(tmp_path))
    plain = network()
    accelerate.load_checkpoint_in_model(plain, str(tmp_path))
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(a.cpu(), b)
    assert all(t.device.type == "cpu" for t in accelerator.get_state_dict(model).values())


def test_what_is_gathered_is_each_row_once():
    accelerator = start(Accelerator)
    data = TensorDataset(torch.arange(19.0))
    loader = accelerator.prepare(DataLoader(data, batch_size=8))
    rows = [accelerator.gather_for_metrics(x).cpu() for (x,) in loader]
    assert torch.equal(torch.cat(rows), torch.arange(19.0))
    assert accelerator.gather_for_metrics(["a", "b"]) == ["a", "b"]
    assert accelerator.reduce(torch.ones(2).to("spmdx")).tolist() == [1.0, 1.0]


def test_there_is_one_process_that_is_the_main_one(capsys):
    accelerator = start(Accelerator)
    assert accelerator.is_main_process and accelerator.is_local_main_process
    assert (accelerator.num_processes, accelerator.process_index) == (1, 0)
    assert accelerator.device.type == PartialState().device.type == "spmdx"
    accelerator.print("once")
    assert capsys.readouterr().out == "once\n"
    with accelerator.main_process_first(), accelerator.local_main_process_first():
        accelerator.wait_for_everyone()
    assert not accelerator.check_trigger()
    accelerator.set_trigger()
    assert accelerator.check_trigger() and not accelerator.check_trigger()
    model = accelerator.prepare(network())
    assert accelerator.unwrap_model(model) is model


def test_a_dict_of_a_batch_and_its_numbers_are_placed():
    placed = start(Accelerator).place({"x": torch.ones(16, 2), "scale": torch.tensor(3.0), "n": 5})
    assert placed["x"].partition_spec == ("dp_replicate", None) and placed["n"] == 5
    assert placed["scale"].item() == 3.0


def test_modules_that_the_plugin_ignores_stay_whole():
    plugin = FSDP(fsdp_version=2, ignored_modules="3")
    model = start(Accelerator, fsdp_plugin=plugin).prepare_model(network())
    assert model[0].weight.partition_spec == ("dp_shard", None)
    assert model[3].weight.partition_spec == (None, None)


def test_gathered_parameters_are_kept_where_the_plugin_says_so():
    before = spmdx.get_gather_budget()
    try:
        start(Accelerator, fsdp_plugin=FSDP(fsdp_version=2, reshard_after_forward=False))
        assert spmdx.get_gather_budget() is None
    finally:
        spmdx.set_gather_budget(before)


def test_the_environment_of_a_launcher_is_read(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    accelerator = start(Accelerator)
    assert accelerator.mesh.shape() == {"dp_shard": 8}
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "2")
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "4")
    assert start(Accelerator).mesh.shape() == {"dp_replicate": 2, "dp_shard": 4}


def test_the_environment_of_a_launcher_asks_for_version_1_without_a_gpu(monkeypatch):
    for name in "ACCELERATE_USE_FSDP", "FSDP_SYNC_MODULE_STATES":
        monkeypatch.setenv(name, "true")
    assert start(Accelerator).mesh.shape() == {"dp_shard": 8}
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
    with pytest.raises(spmdx.ShardingError, match="cpu_ram_efficient_loading"):
        start(Accelerator)


@pytest.mark.parametrize(
    "name, value",
    [
        ("ACCELERATE_USE_CPU", "true"),
        ("ACCELERATE_USE_DEEPSPEED", "true"),
        ("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"),
        ("ACCELERATE_MIXED_PRECISION", "fp16"),
    ],
)
def test_a_launcher_that_chose_something_else_is_named(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(spmdx.ShardingError, match=f"{name} is '{value}'"):
        Accelerator()


@pytest.mark.parametrize(
    "options, said",
    [
        ({"cpu": True}, "cpu is True"),
        ({"mixed_precision": "fp16"}, "mixed_precision is 'fp16'"),
        ({"mixed_precision": "fp8"}, "mixed_precision is 'fp8'"),
        ({"dynamo_backend": "inductor"}, "dynamo_backend is 'inductor'"),
        ({"dataloader_config": DataLoaderConfiguration(dispatch_batches=True)}, "dispatch_batches"),
        ({"parallelism_config": ParallelismConfig(dp_shard_size=3)}, "has 3 devices.*Expected 8"),
        ({"parallelism_config": ParallelismConfig(sp_size=8)}, "sp_size is 8"),
        ({"fsdp_plugin": FSDP(fsdp_version=2, cpu_offload=True)}, "cpu_offload"),
        ({"fsdp_plugin": FSDP(sharding_strategy="HYBRID_SHARD")}, "HYBRID_SHARD"),
        ({"fsdp_plugin": FSDP(mixed_precision_policy="bf16")}, "mixed_precision_policy"),
        (
            {
                "fsdp_plugin": FSDP(fsdp_version=2),
                "parallelism_config": ParallelismConfig(tp_size=8),
            },
            "dp_shard_size is 1",
        ),
        (
            {
                "kwargs_handlers": [
                    accelerate.DistributedDataParallelKwargs(
                        comm_hook=accelerate.utils.DDPCommunicationHookType.FP16
                    )
                ]
            },
            "comm_hook is 'fp16'",
        ),
        ({"kwargs_handlers": [accelerate.utils.GradScalerKwargs()]}, "GradScalerKwargs"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_not_done_is_named(options, said):
    with pytest.raises(spmdx.ShardingError, match=said):
        start(Accelerator, **options)


def test_a_model_without_a_plan_is_named():
    accelerator = start(Accelerator, parallelism_config=ParallelismConfig(tp_size=8))
    with pytest.raises(spmdx.ShardingError, match="brings no tp_plan.*Set tp_size to 1"):
        accelerator.prepare(network())
    plugin = FSDP(fsdp_version=2, activation_checkpointing=True)
    with pytest.raises(spmdx.ShardingError, match="activation_checkpointing"):
        start(Accelerator, fsdp_plugin=plugin).prepare_model(network())
