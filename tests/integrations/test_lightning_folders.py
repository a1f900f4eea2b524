# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in folders: beside files, of other optimizers, of averaged weights."""

import lightning_cases as cases
import pytest
import spmdx
import torch

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)
PL, HERE = cases.frame()


def on(place, folder=True):
    if place == "cpu":
        return {"accelerator": "cpu"}
    strategy = HERE.SpmdxStrategy(plan="fsdp", save_distributed_checkpoint=folder)
    return {"accelerator": "spmdx", "strategy": strategy}


def test_a_file_takes_the_place_of_a_folder(tmp_path):
    path = tmp_path / "kept.ckpt"
    *_, run = cases.fit(PL, tmp_path, epochs=1, **on("spmdx"))
    run.save_checkpoint(path)
    assert path.is_dir()
    _, _, held, run = cases.fit(PL, tmp_path, epochs=2, **on("spmdx", folder=False))
    run.save_checkpoint(path)
    saved = torch.load(path, weights_only=False)["state_dict"]
    assert all(torch.equal(saved[name], tensor) for name, tensor in held.items())
    (tmp_path / "mine").mkdir()
    with pytest.raises(IsADirectoryError, match="mine is a folder, and no checkpoint"):
        run.save_checkpoint(tmp_path / "mine")


def test_validation_reads_no_states_of_optimizers(tmp_path):
    """Another module has been trained by the same trainer."""
    _, _, held, run = cases.fit(PL, tmp_path, epochs=1, **on("spmdx"))
    run.save_checkpoint(tmp_path / "kept")
    other = cases.make(PL)
    other.configure_optimizers = lambda: torch.optim.SGD([other.net[0].weight], lr=0.1)
    run = cases.trainer(PL, tmp_path, epochs=1, **on("spmdx"))
    run.fit(other, *cases.loaders())
    module = cases.make(PL)
    run.validate(module, cases.loaders()[1], ckpt_path=tmp_path / "kept", verbose=False)
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter.cpu(), held[name])


def test_a_module_without_an_optimizer_goes_on(tmp_path):
    for epochs, path in ((1, None), (2, tmp_path / "kept")):
        module = cases.make(PL)
        module.configure_optimizers = lambda: None
        run = cases.trainer(PL, tmp_path, epochs, **on("spmdx"))
        run.fit(module, *cases.loaders(), ckpt_path=path)
        run.save_checkpoint(tmp_path / "kept")
    assert len(module.losses) == 7


def test_averaged_weights_go_on(tmp_path):
    held = {}
    for place in ("cpu", "spmdx"):
        for epochs, path in ((1, None), (2, tmp_path / place)):
            module = cases.make(PL)
            average = PL.callbacks.EMAWeightAveraging(decay=0.5)
            run = cases.trainer(PL, tmp_path, epochs, callbacks=[average], **on(place))
            run.fit(module, *cases.loaders(), ckpt_path=path)
            run.save_checkpoint(tmp_path / place)
        held[place] = [p.detach().cpu() for p in module.parameters()]
        held[place] += [loss.detach().cpu() for loss in module.losses]
    for got, want in zip(held["spmdx"], held["cpu"], strict=True):
        assert torch.allclose(got, want, atol=1e-5, rtol=0)
