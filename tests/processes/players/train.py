# SPDX-License-Identifier: Apache-2.0
"""A small transformer in float64, trained on all processes' devices and in plain PyTorch here.

    train.py MODE BATCH [STEPS]

MODE is one of ``annotate``. Fails unless every parameter and loss is the same within 1e-9; prints
the hash of random numbers drawn on the device, which must not depend on the processes either.
"""

import hashlib
import sys

import spmdx
import torch
import torch.nn.functional as F

STEPS = int(sys.argv[3]) if len(sys.argv) > 3 else 30


class Block(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(torch.nn.Module):
    def __init__(self, width: int = 24, words: int = 29):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.Sequential(Block(width), Block(width))
        self.head = torch.nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


def annotate(mode: str, model: Net) -> tuple[spmdx.Mesh, tuple]:
    """The mesh and the spec of a batch; annotates the model's parameters."""
    count = spmdx.runtime.global_runtime_device_count()
    ids = reversed(range(count)) if mode == "reversed" else range(count)
    line = spmdx.Mesh(ids, (count,), ("data",))
    if mode == "data":
        return line, ("data", None)
    if mode in ("fsdp", "reversed"):
        spmdx.fully_shard(model, line, axis="data")
        return line, ("data", None)
    shape = (1, count) if mode == "tensor" else (count // 2, 2)
    mesh = spmdx.Mesh(range(count), shape, ("data", "model"))
    for block in model.blocks:
        for name, spec in (("qkv", 0), ("up", 0), ("out", 1), ("down", 1)):
            weight = getattr(block, name).weight
            spmdx.mark_sharding(weight, mesh, ("model", None) if spec == 0 else (None, "model"))
    return mesh, ("data", None)


def train(model: Net, device: str, batch: int, place=lambda x: x) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(STEPS):
        text = torch.randint(29, (batch, 9), generator=data)
        x, y = (
            place(text[:, :-1].contiguous().to(device)),
            place(text[:, 1:].contiguous().to(device)),
        )
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if device == "spmdx":
            spmdx.mark_step()
        losses.append(loss)
    return [loss.item() for loss in losses]


def main(mode: str, batch: int) -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    expected, model = Net(), Net()
    model.load_state_dict(expected.state_dict())
    wanted = train(expected, "cpu", batch)
    model = model.to("spmdx")
    mesh, spec = annotate(mode, model)
    got = train(model, "spmdx", batch, lambda x: spmdx.mark_sharding(x, mesh, spec))
    torch.testing.assert_close(torch.tensor(got), torch.tensor(wanted), rtol=1e-9, atol=0)
    for (name, p), q in zip(model.named_parameters(), expected.parameters(), strict=True):
        error = (p.detach().cpu() - q).norm() / q.norm()
        assert error < 1e-9, f"{name} is off by {error}"
    torch.manual_seed(7)
    drawn = spmdx.mark_sharding(torch.randn(batch, 6, device="spmdx"), mesh, spec)
    kept = F.dropout(drawn, 0.4)
    bits = torch.stack([drawn, kept]).cpu().numpy().tobytes()
    counters = spmdx.debug.counters()
    print(
        mode,
        f"process {spmdx.runtime.process_index()} of {spmdx.runtime.process_count()}",
        f"{len(mesh.addressable_positions)} of {mesh.size()} devices",
        f"{counters['wire_bytes'] // STEPS} bytes a step",
        f"random {hashlib.sha256(bits).hexdigest()[:16]}",
        sep="; ",
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
