# SPDX-License-Identifier: Apache-2.0
"""The Trainer and accelerate in many processes are those of one CPU, saving and resuming too."""

import json
import pathlib
import sys

import accelerate
import pytest
import transformers
from accelerate.state import AcceleratorState
from launch import run

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "hugging_face"))

from looped import loop  # noqa: E402
from trained import farthest, llama, losses, rows, trainer  # noqa: E402


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    """What the frames say on the CPU: losses, of the evaluation too, and sums of predictions."""
    settings = {"eval_strategy": "steps", "eval_steps": 4}
    data = {"eval_dataset": rows(17, seed=2)}
    folder = tmp_path_factory.mktemp("cpu")
    made = trainer(transformers.Trainer, folder, settings, llama(), **data)
    made.train()
    evaluated = [e["eval_loss"] for e in made.state.log_history if "eval_loss" in e]
    found = {
        "losses": losses(made),
        "evaluated": made.evaluate()["eval_loss"],
        "best": min(evaluated),
        "predicted": float(abs(made.predict(rows(6, seed=3)).predictions).sum()),
    }
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True)
    looped, *prepared = loop(accelerator)
    after, *_ = loop(accelerator, prepared=prepared, epochs=1)
    AcceleratorState._reset_state(reset_partial_state=True)
    return {**found, "looped": looped, "after": after}


@pytest.mark.parametrize("processes, devices", [(2, 2)])
def test_what_is_learned_is_what_the_cpu_learns(processes, devices, cpu, tmp_path):
    said = run("hugging_face.py", processes, devices, str(tmp_path))
    for index, text in enumerate(said):
        found = json.loads(text.strip().splitlines()[-1])
        ours, looped = found["trainer"], found["accelerate"]
        assert farthest(ours["losses"], cpu["losses"]) < 1e-6
        assert farthest(ours["resumed"], cpu["losses"]) < 1e-6
        assert abs(ours["evaluated"] - cpu["evaluated"]) < 1e-6
        assert abs(ours["best"] - cpu["best"]) < 1e-6
        assert abs(ours["predicted"] / cpu["predicted"] - 1) < 1e-5
        assert ours["writes"] == (index == 0)
        assert farthest(looped["losses"], cpu["looped"]) < 1e-6
        assert farthest(looped["after"], cpu["after"]) < 1e-6
        assert farthest(looped["resumed"], cpu["after"]) < 1e-6
        assert looped["heard"] and looped["counted"] == list(range(7))
        assert looped["came second"] == (index > 0)
        assert (looped["index"], looped["number"]) == (index, 1)
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoint-8")
    assert saved.lm_head.weight.shape == (96, 32)
