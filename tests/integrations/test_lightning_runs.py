# SPDX-License-Identifier: Apache-2.0
"""What a Trainer does around training, on devices and on the CPU: callbacks, loggers, more runs."""

import csv

import lightning_cases as cases
import pytest
import spmdx
import torch

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)
PL, HERE = cases.frame()
PLACES = [{"accelerator": "cpu"}, {"accelerator": "spmdx", "strategy": "spmdx_fsdp", "devices": 8}]


def both(run):
    """What ``run`` gives on the CPU, and on devices."""
    return [run(**place) for place in PLACES]


def test_callbacks_and_loggers_see_the_same_values(tmp_path):
    def run(**place):
        folder = tmp_path / place["accelerator"]
        callbacks = [
            PL.callbacks.EarlyStopping("val", patience=1, min_delta=0.05),
            PL.callbacks.LearningRateMonitor(),
            PL.callbacks.ModelCheckpoint(monitor="val", save_last=True),
        ]
        logger = PL.loggers.CSVLogger(folder)
        options = {"callbacks": callbacks, "logger": logger, "enable_checkpointing": True}
        trainer = cases.fit(PL, folder, 6, epochs=6, log_every_n_steps=2, **options, **place)[3]
        with open(f"{logger.log_dir}/metrics.csv") as file:
            rows = list(csv.DictReader(file))
        numbers = [float(value) for row in rows for _, value in sorted(row.items()) if value]
        best = trainer.checkpoint_callback.best_model_path.rsplit("/")[-1]
        return numbers, [trainer.current_epoch, best, len(rows)]

    want, got = both(run)
    assert got[1] == want[1] and 1 < want[1][0] < 6
    assert got[0] == pytest.approx(want[0], abs=1e-6)


def test_more_runs_of_a_trainer(tmp_path):
    def run(**place):
        module, (train, check) = cases.make(PL), cases.loaders()
        trainer = cases.trainer(PL, tmp_path, 1, **place)
        trainer.fit(module, train, check)
        between = trainer.validate(module, check, verbose=False)[0]["val"]
        trainer.fit_loop.max_epochs = 2
        trainer.fit(module, train, check)
        return [*cases.numbers(module.losses), between, *cases.numbers(module.checked)]

    want, got = both(run)
    assert got == pytest.approx(want, abs=1e-6) and len(want) > 14


def test_manual_optimization(tmp_path):
    def run(**place):
        module = cases.make(PL)
        module.automatic_optimization = False

        def training_step(batch, batch_idx):
            optimizer = module.optimizers()
            optimizer.zero_grad()
            loss = module.loss(batch)
            module.manual_backward(loss)
            optimizer.step()
            module.losses.append(loss.detach())

        module.training_step = training_step
        cases.trainer(PL, tmp_path, 2, **place).fit(module, cases.loaders()[0])
        return cases.numbers(module.losses)

    want, got = both(run)
    assert got == pytest.approx(want, abs=1e-6) and len(want) == 14


def test_averaged_weights_are_the_same(tmp_path):
    def run(**place):
        average = PL.callbacks.StochasticWeightAveraging(1e-2, swa_epoch_start=1)
        return cases.fit(PL, tmp_path, callbacks=[average], **place)[2]

    want, got = both(run)
    for name, parameter in want.items():
        assert torch.allclose(got[name], parameter, atol=1e-5), name
