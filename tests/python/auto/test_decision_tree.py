# SPDX-License-Identifier: Apache-2.0
"""The decision tree of guides comes out of the search: data, tensor, then 3-D parallelism.

Guides tell by what a model holds beside the memory of a device: one that fits is trained data
parallel; one of 1 to 10 times as much tensor parallel within a node, with data parallelism across
nodes; one far beyond with a pipeline as well. The machine is an h100-80 with infiniband, batches
have one to eight sequences of 2,048 tokens for a device.

The last two hold without ZeRO and with pipelines of 1F1B, as guides mean them. With all that there
is, ZeRO 2 over two stages of ZB-H1 is 4 % faster for the second model. The first holds with ZeRO,
which shares the update out; without it "model" over all devices is 4 % faster than data
parallelism, by the same: the planner gathers weights, and cuts tokens along it.
"""

import searched
import spmdx
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, HEAD = 51200, 2048, 128
MEMORY = 80 * 2**30  # of an h100-80
NODE = 8  # devices that NVLink joins


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        heads = self.qkv(self.norm(x)).unflatten(-1, (-1, 3, HEAD)).permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.last(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def of_tokens(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


WITHOUT_ZERO = {"zero": (0,), "schedules": ("1f1b",)}


def found(layers, width, samples, devices, **allowed):
    """The plan for a GPT in bfloat16, and what the model's numbers take beside a device's memory.

    Numbers of parameters are those of well-known models; layers are fewer and wider, so that there
    is less to plan.
    """
    with spmdx.plan_only():
        with torch.device("spmdx"):
            model = Gpt(layers, width).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters())
        plan = spmdx.auto.search(
            searched.step_of(model, optimizer, of_tokens),
            model,
            optimizer,
            torch.empty(samples, LENGTH, dtype=torch.int64, device="meta"),
            devices=devices,
            hardware="h100-80",
            topology="infiniband",
            **allowed,
        )
        numbers = 4  # a parameter, its gradient and two of Adam's, of 2 bytes each
        return plan, numbers * 2 * sum(p.numel() for p in model.parameters()) / MEMORY


def test_a_model_that_fits_a_device_is_trained_data_parallel():  # 0.37 billion parameters
    plan, size = found(layers=12, width=1280, samples=64, devices=8)
    assert size < 0.1
    assert plan.strategy.family == "data"


def test_one_of_a_few_times_the_memory_is_tensor_parallel_within_a_node():  # 13 billion
    plan, size = found(layers=16, width=8192, samples=32, devices=16, **WITHOUT_ZERO)
    assert 1 < size < 10
    strategy = plan.strategy
    assert (strategy.pipe, strategy.data, strategy.model) == (1, 16 // NODE, NODE)


def test_one_far_beyond_is_cut_three_ways():  # 178 billion
    plan, size = found(layers=12, width=34816, samples=64, devices=64, **WITHOUT_ZERO)
    assert size > 10
    strategy = plan.strategy
    assert min(strategy.pipe, strategy.data, strategy.model) > 1 and strategy.model <= NODE
