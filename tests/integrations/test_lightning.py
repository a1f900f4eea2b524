# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer on devices gives what it gives on the CPU."""

import functools
import json
import os
import pathlib
import tempfile
from unittest import mock

import launch
import lightning_cases as cases
import pytest
import spmdx
import torch

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)
PL, HERE = cases.frame()
SPLIT = {"net.0.weight": ("model", None), "net.2.weight": (None, "model")}
CLOSE = 1e-6
HOW = {  # options of the Trainer that mean the same on the CPU
    "plain": {},
    "accumulated": {"accumulate_grad_batches": 3},
    "clipped by norm": {"gradient_clip_val": 0.1},
    "clipped by value": {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    "sync_batchnorm": {"sync_batchnorm": True},
}


def line(devices, axis):
    return spmdx.Mesh(range(devices), (devices,), (axis,))


def on(mesh=None, plan=None, **options):
    return {"accelerator": "spmdx", "strategy": HERE.SpmdxStrategy(mesh, plan, **options)}


@functools.cache
def on_cpu(how="plain", batch=8, **options):
    with tempfile.TemporaryDirectory() as folder:
        return cases.fit(PL, folder, batch, accelerator="cpu", **HOW[how], **options)


@functools.cache
def resumed_on_cpu():
    """From the end of the first epoch; the order of batches is drawn from the seed again."""
    with tempfile.TemporaryDirectory() as folder:
        keep = PL.callbacks.ModelCheckpoint(folder, save_top_k=-1, every_n_epochs=1)
        options = {"accelerator": "cpu", "callbacks": [keep], "enable_checkpointing": True}
        cases.fit(PL, folder, epochs=1, **options)
        (first,) = pathlib.Path(folder).iterdir()
        return cases.fit(PL, folder, ckpt_path=first, accelerator="cpu")


def assert_same(got, want, close=CLOSE):
    for mine, others in zip(got[:2], want[:2], strict=True):
        assert mine == pytest.approx(others, abs=close) and mine
    for name, parameter in want[2].items():
        assert torch.allclose(got[2][name], parameter, atol=close * 10, rtol=0), name


@pytest.mark.parametrize("how", HOW)
def test_options_mean_what_they_mean_on_the_cpu(how, tmp_path):
    got = cases.fit(PL, tmp_path, accelerator="spmdx", strategy="spmdx", devices=8, **HOW[how])
    assert_same(got, on_cpu(how))
    assert got[3].num_devices == 8
    assert got[3].callback_metrics["val"].item() == pytest.approx(got[1][-3:][-1], abs=1)


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("plan", [None, "fsdp"])
def test_on_meshes_even_and_uneven(devices, plan, tmp_path):
    how = on(line(devices, "fsdp" if plan else "data"), plan)
    assert_same(cases.fit(PL, tmp_path, 7, **how), on_cpu(batch=7))


def test_batch_and_weights_are_cut_together(tmp_path):
    mesh = spmdx.Mesh(range(8), (2, 4), ("data", "model"))
    *got, run = cases.fit(PL, tmp_path, **on(mesh, SPLIT))
    assert_same(got, on_cpu())
    assert run.lightning_module.specs == [{"x": ("data", None), "y": ("data", None)}]
    weight = run.lightning_module.net[0].weight
    assert weight.partition_spec == ("model", None)
    state = run.optimizers[0].state[weight]
    assert spmdx.get_sharding(state["exp_avg"]).spec == ("model", None)


def test_a_module_marks_its_parameters_itself(tmp_path):
    mesh = spmdx.Mesh(range(4), (4,), ("model",))
    module = cases.make(PL)
    seen = []

    def configure_sharding(mesh):
        seen.append(mesh)
        spmdx.nn.shard_module(module, mesh, SPLIT)

    module.configure_sharding = configure_sharding
    run = cases.trainer(PL, tmp_path, **on(mesh))
    run.fit(module, *cases.loaders())
    assert cases.numbers(module.losses) == pytest.approx(on_cpu()[0], abs=CLOSE)
    assert seen == [mesh] and module.device_mesh is mesh
    assert module.net[2].weight.partition_spec == (None, "model")


def test_both_packages_have_their_own_classes(tmp_path):
    other, own = cases.frame("pytorch_lightning")
    got = cases.fit(other, tmp_path, accelerator="spmdx", strategy="spmdx_fsdp", devices=8)
    assert_same(got, on_cpu())
    assert type(got[3].strategy) is own.SpmdxStrategy is not HERE.SpmdxStrategy


def test_mixed_precision_is_that_of_the_device(tmp_path):
    want = on_cpu(precision="bf16-mixed")
    got = cases.fit(PL, tmp_path, precision="bf16-mixed", **on())
    assert_same(got, want, close=2e-3)
    assert got[0] != pytest.approx(on_cpu()[0], abs=CLOSE)  # it did round
    assert got[2]["net.0.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    ("precision", "dtype", "close"),
    [
        ("64-true", torch.float64, 1e-9),
        ("bf16-true", torch.bfloat16, 3e-2),
        ("16-true", torch.float16, 3e-3),
    ],
)
def test_true_precisions_are_those_of_the_cpu(precision, dtype, close, tmp_path):
    want = on_cpu(precision=precision)
    got = cases.fit(PL, tmp_path, precision=precision, **on())
    # In float16 the 1e-8 of AdamW is 0, and parameters become nan on the CPU as well.
    assert got[0] == pytest.approx(want[0], abs=close, nan_ok=True) and got[0][0] > 0
    assert got[2]["net.0.weight"].dtype == dtype


def test_half_precision_scales_its_losses(tmp_path):
    got = cases.fit(PL, tmp_path, precision="16-mixed", **on())
    assert got[0] == pytest.approx(on_cpu()[0], abs=2e-3)
    assert got[3].precision_plugin.scaler.get_scale() > 1


def test_a_step_is_cut_for_each_batch_and_logging_reads_nothing(tmp_path):
    module, run = cases.make(PL), cases.trainer(PL, tmp_path, 1, **on(), limit_val_batches=0)
    spmdx._C.clear_cache()  # an equal program of another test would leave nothing to count
    spmdx.debug.reset_counters()
    seen = []
    module.on_train_batch_end = lambda *_: seen.append(spmdx.debug.counters())
    run.fit(module, *cases.loaders())
    cut = [c["plans_compiled"] + c["plan_cache_hits"] for c in seen]
    assert [each - cut[0] for each in cut] == list(range(7))
    assert seen[-1]["implicit_syncs"] == seen[0]["implicit_syncs"]
    assert seen[-1]["plans_compiled"] == seen[1]["plans_compiled"] + 1  # the last batch is smaller


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("amid", [False, True])
def test_saving_and_going_on(folder, amid, tmp_path):
    """At the end of an epoch, and in the middle of one as Lightning does on the CPU."""
    every = {"every_n_train_steps": 10} if amid else {"every_n_epochs": 1}
    made, losses = {}, {}
    for place in ("cpu", "spmdx"):
        options = {"accelerator": "cpu"}
        if place == "spmdx":
            options = on(line(8, "fsdp"), "fsdp", save_distributed_checkpoint=folder)
        keep = PL.callbacks.ModelCheckpoint(tmp_path / place, save_top_k=-1, **every)
        cases.fit(PL, tmp_path, **options, callbacks=[keep], enable_checkpointing=True)
        made[place] = sorted((tmp_path / place).iterdir())
        if place == "spmdx":
            options["strategy"] = HERE.SpmdxStrategy(line(4, "fsdp"), "fsdp")
        losses[place] = cases.fit(PL, tmp_path, ckpt_path=made[place][0], **options)
    assert [path.name for path in made["spmdx"]] == [path.name for path in made["cpu"]]
    assert made["spmdx"][0].is_dir() == folder and 0 < len(losses["cpu"][0]) < 21
    assert_same(losses["spmdx"], losses["cpu"])


def test_a_file_goes_to_the_cpu_and_back(tmp_path):
    options = {"enable_checkpointing": True}
    keep = PL.callbacks.ModelCheckpoint(tmp_path / "here", save_top_k=-1, every_n_epochs=1)
    cases.fit(PL, tmp_path, **on(line(3, "fsdp"), "fsdp"), callbacks=[keep], **options)
    first = sorted((tmp_path / "here").iterdir())[0]
    held = torch.load(first, weights_only=False)
    assert {t.device.type for t in held["state_dict"].values()} == {"cpu"}
    there = cases.fit(PL, tmp_path, ckpt_path=first, accelerator="cpu")
    assert there[0] == pytest.approx(resumed_on_cpu()[0], abs=CLOSE)
    module = cases.make(PL)
    (said,) = cases.trainer(PL, tmp_path, **on()).validate(
        module, cases.loaders()[1], ckpt_path=first, verbose=False
    )
    want = cases.trainer(PL, tmp_path, accelerator="cpu").validate(
        cases.make(PL), cases.loaders()[1], ckpt_path=first, verbose=False
    )
    assert said["val"] == pytest.approx(want[0]["val"], abs=CLOSE)


def test_an_empty_module_is_made_on_the_devices(tmp_path):
    run = cases.trainer(PL, tmp_path, **on(line(4, "fsdp"), "fsdp"))
    with run.init_module(empty_init=True):
        module = cases.make(PL)
    assert module.net[0].weight.is_meta
    run.fit(module, *cases.loaders())
    assert module.net[0].weight.partition_spec == ("fsdp", None)
    losses = cases.numbers(module.losses)
    assert all(0 < loss < 1 for loss in losses) and losses[-1] < losses[0]


def test_predictions_are_those_of_the_cpu(tmp_path):
    said = []
    for options in ({"accelerator": "cpu"}, on()):
        module = cases.make(PL)
        module.predict_step = lambda batch, index, module=module: module.net(batch["x"])
        given = cases.trainer(PL, tmp_path, **options).predict(module, cases.loaders()[1])
        said.append(torch.cat([each.cpu() for each in given]))
    assert torch.allclose(*said, atol=CLOSE)


REFUSED = [
    ({"strategy": "auto"}, "Expected a strategy of spmdx"),
    ({"strategy": "ddp"}, "Expected a strategy of spmdx"),
    ({"devices": [0, 1], "strategy": "spmdx"}, r"devices=\[0, 1\]"),
    ({"num_nodes": 2, "strategy": "spmdx"}, "num_nodes=2"),
    ({"accelerator": "cpu", "strategy": "spmdx"}, "the accelerator is CPUAccelerator"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_means_something_else_is_refused(options, said, tmp_path):
    with mock.patch.dict(os.environ), pytest.raises(spmdx.ShardingError, match=said):
        run = cases.trainer(PL, tmp_path, **{"accelerator": "spmdx"} | options)
        run.fit(cases.make(PL), *cases.loaders())  # Lightning writes variables of a launcher
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "option", ["cpu_offload", "find_unused_parameters", "tensor_parallel_size", "what"]
)
def test_options_of_other_strategies_are_refused_by_name(option):
    with pytest.raises(spmdx.ShardingError, match=f"{option}=True is no option"):
        HERE.SpmdxStrategy(**{option: True})


@pytest.mark.parametrize("mode", ["spmdx", "spmdx_fsdp", "folder"])
def test_two_processes_of_two_devices(mode, tmp_path):
    player = str(pathlib.Path(__file__).parent / "players" / "lightning_fit.py")
    whole, rest = on_cpu(), resumed_on_cpu()
    for line_of_process in launch.run(player, 2, 2, mode, str(tmp_path)):
        said = json.loads(line_of_process.splitlines()[-1])
        assert said["whole"] == pytest.approx(whole[0], abs=CLOSE)
        assert said["resumed"] == pytest.approx(rest[0], abs=CLOSE) and len(rest[0]) == 14
        assert said["val"] == pytest.approx(rest[1], abs=CLOSE)


def test_each_process_loads_its_part(tmp_path):
    player = str(pathlib.Path(__file__).parent / "players" / "lightning_fit.py")
    told = launch.run(player, 2, 2, "minibatch", str(tmp_path))
    said, other = (json.loads(text.splitlines()[-1]) for text in told)
    assert said == other
    assert said["rows"] == [16, 16, 16, 4] * 2  # 52 rows in batches of 8 a process
    assert said["losses"][0] == pytest.approx(said["want"], abs=CLOSE)
    assert said["resumed"] == pytest.approx(said["losses"][4:], abs=CLOSE)
