# SPDX-License-Identifier: Apache-2.0
"""A module of Lightning, and what its training gives: on the CPU, and on devices."""

import importlib

import torch
import torch.nn.functional as F


def make(pl, width=16, rate=1e-2):
    class Regression(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = torch.nn.Sequential(
                torch.nn.Linear(8, width), torch.nn.GELU(), torch.nn.Linear(width, 4)
            )
            self.losses, self.checked, self.specs = [], [], []

        def on_train_batch_start(self, batch, index):
            specs = {name: getattr(part, "partition_spec", None) for name, part in batch.items()}
            self.specs += [specs] if specs not in self.specs else []

        def loss(self, batch):
            x, y = batch["x"], batch["y"]
            return F.mse_loss(self.net(x), y)

        def training_step(self, batch, index):
            loss = self.loss(batch)
            self.log("loss", loss, sync_dist=True)
            self.losses.append(loss.detach())
            return loss

        def validation_step(self, batch, index):
            loss = self.loss(batch)
            self.log("val", loss, sync_dist=True)
            self.checked.append(loss.detach())

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=rate)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            return [optimizer], [schedule]

    return Regression()


def rows(count, seed):
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=drawn)
    return [{"x": one, "y": one[:4].sin()} for one in x]


def loaders(batch=8):
    order = torch.Generator().manual_seed(3)
    train = torch.utils.data.DataLoader(rows(52, 1), batch, shuffle=True, generator=order)
    return train, torch.utils.data.DataLoader(rows(20, 2), batch)


def trainer(pl, folder, epochs=3, **options):
    quiet = dict(
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_epochs=epochs,
        default_root_dir=str(folder),
        num_sanity_val_steps=0,
    )
    return pl.Trainer(**quiet | {"enable_checkpointing": False} | options)


def numbers(values):
    return [value.item() for value in values]


def fit(pl, folder, batch=8, ckpt_path=None, epochs=3, **options):
    """Losses of training and of validation, parameters after it, and the trainer."""
    module = make(pl)
    run = trainer(pl, folder, epochs, **options)
    run.fit(module, *loaders(batch), ckpt_path=ckpt_path)
    held = {name: p.detach().cpu() for name, p in module.named_parameters()}
    return numbers(module.losses), numbers(module.checked), held, run


def frame(name="lightning"):
    pl = importlib.import_module("lightning.pytorch" if name == "lightning" else name)
    return pl, importlib.import_module(f"spmdx.integrations.{name}")
