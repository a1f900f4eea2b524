# SPDX-License-Identifier: Apache-2.0
"""Whole training through compilers; ``train.py`` has all models on all meshes."""

import importlib.util

import pytest
import spmdx
from train import trial
from trained_models import MODELS, PLACES

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)
NEEDS = {"xla": "jaxlib", "iree": "iree"}
PAIRS = list(zip(MODELS, PLACES, strict=True))
TRIALS = [("xla", *pair) for pair in PAIRS] + [
    ("xla", "unet", "data 4"),
    ("iree", "gpt", "model 4"),
    ("iree", "resnet", "fsdp 4"),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPMDX_CACHE", str(tmp_path))
    yield
    spmdx.set_compiler(None)


@pytest.mark.parametrize(("compiler", "model", "place"), TRIALS)
def test_steps_are_those_of_pytorch_and_most_of_them_is_compiled(compiler, model, place):
    if importlib.util.find_spec(NEEDS[compiler]) is None:
        pytest.skip(f"{NEEDS[compiler]} is not installed")
    found = trial(compiler, model, place)
    assert found.holds, found
    assert set(found.states) == {"compiled"}


def test_a_trial_finds_what_is_wrong(monkeypatch):
    import compilers_of_tests

    for broken in (compilers_of_tests.IsWrong, compilers_of_tests.Raises):
        found = trial(broken(), "vit", "one", steps=2)
        assert not found.holds and found.said
