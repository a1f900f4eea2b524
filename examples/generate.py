# SPDX-License-Identifier: Apache-2.0
"""Teach a small decoder to write words backwards, then let it, token by token, with a KV cache.

    python examples/generate.py                    # 8 virtual devices: 4 x 2
    python examples/generate.py --cpu              # the same numbers in plain PyTorch

The cache has a fixed size and is written in place: the prompt is one step, then every token is one
of the same shapes, so decoding is planned once. Rows are cut by one axis of the mesh, heads, in the
weights as in the cache, by the other.
"""

import spmdx
import torch
import torch.nn.functional as F
from example_options import parse
from torch import nn

VOCAB, WORD, WIDTH, LAYERS, HEADS, BATCH = 12, 6, 64, 2, 4, 64
LENGTH = 2 * WORD + 1  # a word, a mark, the word backwards
MARK = VOCAB - 1

PLAN = {
    "*.[qkv].weight": ("model", None),
    "*.out.weight": (None, "model"),
    "*.up.weight": ("model", None),
    "*.down.weight": (None, "model"),
    "*.keys": ("data", "model", None, None),
    "*.values": ("data", "model", None, None),
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        for name in ("keys", "values"):
            cache = torch.zeros(BATCH, HEADS, LENGTH, WIDTH // HEADS)
            self.register_buffer(name, cache, persistent=False)

    def forward(self, x, places=None, mask=None):
        h = self.norm1(x)
        q, k, v = (
            f(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        if places is not None:  # what came before is in the cache, and this is added to it
            k = self.keys.index_copy_(2, places, k)
            v = self.values.index_copy_(2, places, v)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids, places=None):
        """Logits of all places; with `places`, which `ids` are at, by the cache."""
        mask = None
        if places is None:
            x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        else:
            x = self.tokens(ids) + self.places(places)
            mask = torch.arange(LENGTH, device=ids.device) <= places[:, None]
        for block in self.blocks:
            x = block(x, places, mask)
        return self.head(self.norm(x))


def batches(steps, seed):
    """Random words, a mark, the words backwards: [batch, length]."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        word = torch.randint(MARK, (BATCH, WORD), generator=generator)
        yield torch.cat((word, torch.full((BATCH, 1), MARK), word.flip(1)), 1)


def train(mesh, steps):
    """(the decoder, the loss of each step) on a mesh with axes "data" and "model", or the CPU."""
    torch.manual_seed(0)
    model = Decoder()
    data = batches(steps, seed=1)
    if mesh is not None:
        model.to("spmdx")
        spmdx.nn.shard_module(model, mesh, PLAN)
        rows = spmdx.data.ShardingSpec(mesh, ("data",))
        data = spmdx.data.device_loader(data, input_sharding=rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for ids in data:
        logits = model(ids[:, :-1])[:, WORD:]  # what comes after the mark can be known
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, WORD + 1 :].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
        losses.append(loss.detach())
    return model, [loss.item() for loss in losses]


@torch.no_grad()
def generate(model, prompt, count):
    """The most likely `count` tokens after the prompt, [batch, count]; prefill, then decode."""
    place = torch.arange(prompt.shape[1], device=prompt.device)
    ids, made = prompt, []
    for _ in range(count):
        ids = model(ids, place)[:, -1:].argmax(-1)
        place = place[-1:] + 1
        made.append(ids)
        spmdx.mark_step()
    return torch.cat(made, 1)


def main():
    options = parse(__doc__, steps=400)
    mesh = None
    if not options.cpu:
        devices = spmdx.runtime.global_runtime_device_count()
        cuts = 2 if devices % 2 == 0 else 1
        mesh = spmdx.Mesh(range(devices), (devices // cuts, cuts), ("data", "model"))
    model, losses = train(mesh, options.steps)
    (ids,) = batches(1, seed=2)
    prompt = ids[:, : WORD + 1].to("cpu" if mesh is None else "spmdx")
    if mesh is not None:
        spmdx.mark_sharding(prompt, mesh, ("data", None))
    made = generate(model, prompt, WORD).cpu()
    if spmdx.runtime.process_index() == 0:
        right = (made == ids[:, WORD + 1 :]).all(1).sum()
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {right} of {BATCH} words right")
        print(f"{ids[0, :WORD].tolist()} backwards is {made[0].tolist()}")


if __name__ == "__main__":
    main()
