# SPDX-License-Identifier: Apache-2.0
"""Trains by a config of DeepSpeed in all processes, and goes on from a checkpoint amid it.

deepspeed_train.py FOLDER
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import deepspeed_cases as cases  # noqa: E402
from spmdx.integrations import deepspeed  # noqa: E402


def main(folder):
    config = {"train_batch_size": 24, "gradient_clipping": 0.05, "optimizer": cases.ADAM}
    data = cases.batches(24, cases.STEPS)
    first, *_ = deepspeed.initialize(
        model=cases.make(), config=config | {"zero_optimization": {"stage": 2}}
    )
    losses = cases.train(first, data[:3])
    first.save_checkpoint(folder)
    losses += cases.train(first, data[3:])
    again, *_ = deepspeed.initialize(
        model=cases.make(), config=config | {"zero_optimization": {"stage": 3}}
    )
    again.load_checkpoint(folder)
    print(json.dumps({"whole": losses, "resumed": cases.train(again, data[3:])}))


if __name__ == "__main__":
    main(sys.argv[1])
