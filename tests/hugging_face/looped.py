# SPDX-License-Identifier: Apache-2.0
"""A loop that is written for accelerate, as its own examples are."""

import torch
import torch.nn.functional as F
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def network():
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Dropout(0.0), torch.nn.Linear(32, 4)
    return torch.nn.Sequential(*layers)


def parts(batch_size=8):
    """Model, optimizer, loader and scheduler, alike every time."""
    drawn = torch.Generator().manual_seed(1)
    x, y = torch.randn(50, 8, generator=drawn), torch.randint(4, (50,), generator=drawn)
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)


def loop(accelerator, epochs=2, prepared=None):
    """Losses, and the parts as they were prepared."""
    set_seed(3)
    prepared = accelerator.prepare(*parts()) if prepared is None else prepared
    model, optimizer, loader, scheduler = prepared
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
    return [loss.item() for loss in losses], *prepared
