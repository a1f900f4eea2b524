# SPDX-License-Identifier: Apache-2.0
"""Trains in all processes, saves, goes on from the first epoch; prints losses as JSON.

lightning_fit.py MODE FOLDER: a strategy's name, "folder" for checkpoints that are folders, or
"minibatch" for batches in parts, which prints rows too, and the first loss of the same rows.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import lightning_cases as cases  # noqa: E402
import spmdx  # noqa: E402
import torch  # noqa: E402

PL, HERE = cases.frame()


def strategy(mode):
    if mode == "folder":
        return HERE.SpmdxStrategy(plan="fsdp", save_distributed_checkpoint=True)
    return mode


def whole_and_resumed(mode, folder):
    keep = PL.callbacks.ModelCheckpoint(folder / "kept", save_top_k=-1, every_n_epochs=1)
    options = {"accelerator": "spmdx", "devices": 2}
    first = cases.fit(
        PL,
        folder,
        **options,
        strategy=strategy(mode),
        callbacks=[keep],
        enable_checkpointing=True,
        logger=PL.loggers.CSVLogger(folder),
    )
    assert first[3].world_size == 2 and first[3].num_devices == 2
    kept = sorted((folder / "kept").iterdir())[0]
    rest = cases.fit(PL, folder, ckpt_path=kept, **options, strategy=strategy(mode))
    return {"whole": first[0], "resumed": rest[0], "val": rest[1]}


def in_parts(folder):
    module, rows = cases.make(PL), []
    seen = []

    def on_train_batch_start(batch, index):
        rows.append(len(batch["x"]))
        if not seen:
            seen.append({name: part.cpu() for name, part in batch.items()})

    module.on_train_batch_start = on_train_batch_start
    keep = PL.callbacks.ModelCheckpoint(folder, save_top_k=-1, every_n_epochs=1)
    options = {"accelerator": "spmdx", "callbacks": [keep], "enable_checkpointing": True}
    how = HERE.SpmdxStrategy(minibatch=True)
    cases.trainer(PL, folder, 2, strategy=how, **options).fit(module, *cases.loaders())
    want = cases.make(PL).loss(seen[0]).item()
    kept = sorted(folder.glob("*.ckpt"))[0]
    how = HERE.SpmdxStrategy(minibatch=True)
    again = cases.fit(PL, folder, ckpt_path=kept, epochs=2, strategy=how, accelerator="spmdx")
    losses = cases.numbers(module.losses)
    return {"rows": rows, "losses": losses, "want": want, "resumed": again[0]}


if __name__ == "__main__":
    mode, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(0)
    said = in_parts(folder) if mode == "minibatch" else whole_and_resumed(mode, folder)
    spmdx.sync(wait=True)
    print(json.dumps(said))
