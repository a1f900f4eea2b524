# SPDX-License-Identifier: Apache-2.0
"""Train an LSTM to read digits row by row, in pieces of the sequence: truncated backpropagation.

    python examples/train_lstm.py                  # 8 virtual devices
    python examples/train_lstm.py --cpu            # the same numbers in plain PyTorch

The batch is cut. The state goes from piece to piece, each a step of its own, where it lies.
"""

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn
from train_vit import batches, load

HIDDEN, LAYERS, PIECE = 64, 2, 4


class Reader(nn.Module):
    """The class of an image from the rows seen so far."""

    def __init__(self, columns=8, classes=10):
        super().__init__()
        self.lstm = nn.LSTM(columns, HIDDEN, LAYERS, batch_first=True)
        self.head = nn.Linear(HIDDEN, classes)

    def forward(self, rows, state=None):
        out, state = self.lstm(rows, state)
        return self.head(out[:, -1]), state


def train(mesh, steps):
    """(the loss of each batch's last piece, the share of unseen digits that are read rightly).

    Args:
        mesh: with an axis "data"; None for the CPU.
        steps: how many batches.
    """
    torch.manual_seed(0)
    model = Reader()
    known, unseen = load()
    data = batches(known, steps)
    if mesh is not None:
        model.to("spmdx")
        by_rows = spmdx.data.ShardingSpec(mesh, ("data",))
        data = spmdx.data.device_loader(data, input_sharding=by_rows)
        (unseen,) = spmdx.data.device_loader([unseen], input_sharding=by_rows)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)

    losses = []
    for x, y in data:
        state = None
        for piece in x[:, 0].split(PIECE, 1):
            logits, state = model(piece, state)
            loss = F.cross_entropy(logits, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            state = tuple(part.detach() for part in state)
            spmdx.mark_step()
        losses.append(loss.detach())

    model.eval()
    with torch.no_grad():
        right = (model(unseen[0][:, 0])[0].argmax(-1) == unseen[1]).double().mean()
    return [loss.item() for loss in losses], right.item()


def main():
    options = parse(__doc__, steps=150)
    mesh = None if options.cpu else spmdx.get_1d_mesh("data")
    losses, right = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {right:.1%} of unseen digits right")


if __name__ == "__main__":
    main()
