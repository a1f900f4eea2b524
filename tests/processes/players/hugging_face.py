# SPDX-License-Identifier: Apache-2.0
"""A Trainer and a loop for accelerate in many processes; says what they learned as JSON.

    hugging_face.py FOLDER

All processes share the folder, to which checkpoints go.
"""

import json
import pathlib
import sys

import spmdx
import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils import set_seed
from spmdx.integrations.accelerate import Accelerator
from spmdx.integrations.transformers import Trainer

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "hugging_face"))

from looped import loop, parts  # noqa: E402
from trained import llama, losses, rows, trainer  # noqa: E402

SETTINGS = {"fsdp": True, "save_strategy": "steps", "save_steps": 4, "eval_strategy": "epoch"}
MORE = {**SETTINGS, "load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 4}


def train(folder, settings, **how):
    made = trainer(Trainer, folder / "run", settings, llama(), eval_dataset=rows(17, seed=2))
    made.train(**how)
    return made


def train_and_resume(folder):
    whole = train(folder, SETTINGS)
    resumed = train(folder, SETTINGS, resume_from_checkpoint=str(folder / "run" / "checkpoint-4"))
    best = train(folder / "best", MORE)
    return {
        "losses": losses(whole),
        "resumed": losses(resumed),
        "evaluated": whole.evaluate()["eval_loss"],
        "best": best.evaluate()["eval_loss"],
        "predicted": float(abs(whole.predict(rows(6, seed=3)).predictions).sum()),
        "writes": whole.is_world_process_zero(),
    }


def accelerated(folder):
    accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
    said, *prepared = loop(accelerator)
    accelerator.save_state(str(folder / "state"))
    after, *_ = loop(accelerator, prepared=prepared, epochs=1)
    set_seed(99)
    again = accelerator.prepare(*parts())
    accelerator._models, accelerator._optimizers = [again[0]], [again[1]]
    accelerator._schedulers = [again[3]]
    accelerator.load_state(str(folder / "state"))
    resumed, *_ = loop(accelerator, prepared=again, epochs=1)
    if spmdx.runtime.process_index() == 1:
        accelerator.set_trigger()  # in one process: all hear of it
    counted = accelerator.gather_for_metrics(accelerator.place(torch.arange(7.0))).cpu().tolist()
    with accelerator.main_process_first():
        order = (folder / "first").exists()
        (folder / "first").touch()
    return {
        "losses": said,
        "after": after,
        "resumed": resumed,
        "heard": accelerator.check_trigger(),
        "counted": counted,
        "came second": order,
        "index": accelerator.process_index,
        "number": accelerator.num_processes,
    }


if __name__ == "__main__":
    place = pathlib.Path(sys.argv[1])
    trained = train_and_resume(place)
    print("\n" + json.dumps({"trainer": trained, "accelerate": accelerated(place)}))
