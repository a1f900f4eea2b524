# SPDX-License-Identifier: Apache-2.0
"""Train a character-level GPT unsharded, or on 8 virtual devices in four ways, with one loop.

    python examples/train_gpt.py --mode dp_tp --steps 200     # one mode
    python examples/train_gpt.py --demo                       # all five modes, side by side

The text is the English of CPython's own `pydoc_data.topics`, so nothing is downloaded.
"""

import argparse
import math
import os
import statistics
import time
from dataclasses import dataclass, field
from pydoc_data.topics import topics

import spmdx
import torch
import torch.nn.functional as F
from rich.progress import track
from torch import nn

MODES = ("eager", "dp", "fsdp", "tp", "dp_tp")
LEARNING_RATE, WARM_UP = 2e-3, 20


# --- the model: plain PyTorch, knows nothing of devices -------------------------------------------


@dataclass
class Config:
    vocab: int
    layers: int = 4
    width: int = 128
    heads: int = 8
    context: int = 64
    dropout: float = 0.1


class Attention(nn.Module):
    """Causal attention. q, k and v are separate, so that cutting their outputs cuts whole heads."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.p = config.heads, config.dropout
        self.q, self.k, self.v, self.out = (nn.Linear(config.width, config.width) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight  # tied

    def forward(self, ids):
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(place))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# --- the annotations: all that differs between the modes ------------------------------------------


def make_mesh(mode, devices):
    """The mesh of a mode, with an axis "data", an axis "model", or both."""
    if mode == "dp_tp":
        return spmdx.Mesh(range(devices), (devices // 2, 2), ("data", "model"))
    return spmdx.Mesh(range(devices), (devices,), ("model" if mode == "tp" else "data",))


def annotate(model, mode, mesh):
    """Say how the parameters lie on the mesh; activations, gradients and AdamW's state follow."""
    if mode == "fsdp":
        for p in model.parameters():  # every parameter on its first dim that the devices divide
            dim = next((d for d, n in enumerate(p.shape) if n % mesh.size() == 0), 0)
            spec = tuple("data" if d == dim else None for d in range(p.dim()))
            spmdx.mark_sharding(p, mesh, spec)
    if mode in ("tp", "dp_tp"):
        for block in model.blocks:
            heads = block.attention
            for column in (heads.q, heads.k, heads.v, block.up):
                spmdx.mark_sharding(column.weight, mesh, ("model", None))
                spmdx.mark_sharding(column.bias, mesh, ("model",))
            for row in (heads.out, block.down):
                spmdx.mark_sharding(row.weight, mesh, (None, "model"))


# --- the data and the loop ------------------------------------------------------------------------


def load_text():
    """(token ids of the whole text, the characters in the order of their ids)."""
    text = "\n".join(topics.values())
    characters = sorted(set(text))
    index = {c: i for i, c in enumerate(characters)}
    return torch.tensor([index[c] for c in text]), characters


def batches(ids, steps, batch_size, context, seed=1):
    """Random windows and their successors, in the same order for every mode."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(ids) - context, (batch_size, 1), generator=generator)
        window = ids[starts + torch.arange(context + 1)]
        yield window[:, :-1], window[:, 1:]


def is_first():
    """Whether this process is the one that prints."""
    return spmdx.runtime.process_index() == 0


def learning_rate(step, steps):
    """Factor of the learning rate: linear warm-up, then half a cosine down to a tenth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    progress = (step - WARM_UP) / max(1, steps - WARM_UP)
    return 0.55 + 0.45 * math.cos(math.pi * progress)


@dataclass
class Run:
    """What one mode gave."""

    mode: str
    model: nn.Module
    losses: list = field(default_factory=list)
    step_seconds: float = math.nan  # median over groups of 10 steps after the warm-up
    report: object = None  # spmdx.explain() of the training step
    parameter_bytes: int = 0  # on one device


def train(mode, ids, config, steps, batch_size=16, devices=8, dtype=torch.float32, read_every=10):
    """Train one mode from the common seed; the loss is read once every `read_every` steps."""
    torch.manual_seed(0)
    model = GPT(config).to(dtype)  # built on the CPU, so every mode starts from the same numbers
    mesh = None if mode == "eager" else make_mesh(mode, devices)
    device = torch.device("cpu" if mesh is None else "spmdx")
    model = model.to(device)
    if mesh is not None:
        annotate(model, mode, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: learning_rate(s, steps))

    run, unread, groups, began = Run(mode, model), [], [], time.perf_counter()
    data = batches(ids, steps, batch_size, config.context)
    if mesh is not None:
        by_rows = spmdx.data.ShardingSpec(mesh, ("data",)) if "data" in mesh.axis_names else None
        data = spmdx.data.device_loader(data, input_sharding=by_rows)
    shown = track(data, f"{mode:>6}", total=steps, disable=not is_first())
    for step, (x, y) in enumerate(shown):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if mesh is not None:
            spmdx.mark_step()

        unread.append(loss.detach())
        if len(unread) == read_every or step == steps - 1:
            run.losses += [value.item() for value in unread]
            now = time.perf_counter()
            groups.append((now - began) / len(unread))
            unread, began = [], now
    run.step_seconds = statistics.median(groups[1:] or groups)
    run.report = None if mesh is None else spmdx.explain()
    run.parameter_bytes = sum(local_bytes(p) for p in model.parameters())
    return run


def local_bytes(tensor):
    """Bytes of `tensor` that the most loaded device holds."""
    sharding = spmdx.get_sharding(tensor) if tensor.device.type == "spmdx" else None
    boxes = sharding.boxes(tensor.shape) if sharding else [tuple(map(slice, tensor.shape))]
    elements = max(math.prod(s.stop - (s.start or 0) for s in box) for box in boxes)
    return elements * tensor.element_size()


@torch.no_grad()
def generate(model, ids, characters, context, length=240, seed=2):
    """Continue a piece of the text; the window has a fixed length, so one plan does."""
    model.eval()
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    window, made = ids[:context].tolist(), []
    for _ in range(length):
        logits = model(torch.tensor([window]).to(device))[0, -1].cpu().float()
        made.append(torch.multinomial((logits / 0.8).softmax(-1), 1, generator=generator).item())
        window = window[1:] + made[-1:]
    model.train()
    return "".join(characters[i] for i in made)


# --- the command ----------------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=MODES, default="dp_tp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--devices", type=int, default=8, help="virtual devices (even)")
    parser.add_argument("--dropout", type=float, help="0.1; --demo takes 0, to compare with eager")
    parser.add_argument("--demo", action="store_true", help="all five modes and what they cost")
    parser.add_argument("--tiny", action="store_true", help="a small model, for a quick try")
    parser.add_argument("--picture", default="gpt_losses.png", help="where --demo draws the losses")
    return parser.parse_args()


def main():
    options = parse()
    ids, characters = load_text()
    # Random numbers on the device are the same on every mesh but not eager's, so dropout would hide
    # whether a sharded run equals eager: the comparison is made without it.
    dropout = options.dropout
    if dropout is None:
        dropout = 0.0 if options.demo else 0.1
    config = Config(len(characters), dropout=dropout)
    if options.tiny:
        config.layers, config.width, config.context = 2, 32, 16
    if options.demo or options.mode != "eager":
        # One process plays all devices here; under torchrun the processes are the devices.
        if "WORLD_SIZE" not in os.environ:
            spmdx.runtime.set_device_count(options.devices)
    devices = spmdx.runtime.global_runtime_device_count()
    settings = (options.steps, options.batch_size, devices)
    if options.demo:
        import demo_report
    modes = MODES if options.demo else (options.mode,)
    runs = [train(mode, ids, config, *settings) for mode in modes]
    sample = generate(runs[-1].model, ids, characters, config.context)
    if not is_first():
        return
    if options.demo:
        demo_report.show(runs, options.picture)
    else:
        print(f"loss {runs[0].losses[0]:.4f} -> {runs[0].losses[-1]:.4f}")
    print(f"\nWritten by the model trained as {runs[-1].mode}:\n{sample}")


if __name__ == "__main__":
    main()
