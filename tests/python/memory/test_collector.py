# SPDX-License-Identifier: Apache-2.0
"""Nothing here leaves tensors to Python's collector: they are freed with their last name.

One in a cycle of objects would be held, and returned by the steps of a process, until it comes.
"""

import gc
import pathlib
import sys

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "integrations"))
import deepspeed_cases  # noqa: E402
from spmdx.integrations import deepspeed  # noqa: E402

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)
MESH = spmdx.Mesh(range(4), (2, 2), ("data", "model"))

SPEC = spmdx.data.ShardingSpec(MESH, ("data",))


def model():
    torch.manual_seed(0)
    blocks = (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)) for _ in range(4))
    return nn.Sequential(*blocks).to("spmdx")


def trained(net, rows=8, parts=1):
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        for x in torch.randn(rows, 6).to("spmdx").chunk(parts):
            F.mse_loss(net(x).float(), x).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()


def marked():
    net = model()
    for block in net:
        spmdx.mark_sharding(block[0].weight, MESH, ("model", None))
    trained(net)


def fully_sharded():
    policy = torch.distributed.fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    trained(spmdx.fully_shard(model(), MESH, axis="data", mp_policy=policy))


def in_stages():
    net = model()
    spmdx.nn.pipeline(net, spmdx.Mesh(range(4), (4,), ("pipe",)), cuts=["1", "2", "3"])
    trained(net, parts=4)


def in_chosen_stages():
    net = model()
    spmdx.nn.pipeline(net, spmdx.Mesh(range(2), (2,), ("pipe",)))
    trained(net, parts=2)


def by_hand():
    x = torch.ones(8, 6, device="spmdx", requires_grad=True)
    cut = spmdx.shard_map(torch.sin, MESH, (("data", "model"),), ("data", "model"))
    cut(x).sum().backward()


def loaded():
    rows = [(torch.ones(6), {"y": torch.ones(2)}) for _ in range(16)]
    loader = torch.utils.data.DataLoader(rows, 8)
    for x, other in spmdx.data.device_loader(loader, input_sharding=SPEC):
        assert (x.sum() + other["y"].sum()).item() == 64


def saved(folder):
    net = model()
    spmdx.checkpoint.save(net.state_dict(), folder / "a")
    state = net.state_dict()
    spmdx.checkpoint.load(state, folder / "a")


def by_deepspeed():
    config = {"train_batch_size": 24, "optimizer": deepspeed_cases.ADAM}
    engine, *_ = deepspeed.initialize(
        model=deepspeed_cases.make(), config=config | {"zero_optimization": {"stage": 2}}
    )
    deepspeed_cases.train(engine, deepspeed_cases.batches(24, 3))


PROGRAMS = [
    marked,
    fully_sharded,
    in_stages,
    in_chosen_stages,
    by_hand,
    loaded,
    saved,
    by_deepspeed,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_no_tensor_is_left_to_the_collector(program, tmp_path):
    arguments = [tmp_path] if program is saved else []
    program(*arguments)  # what is made once, as imports and caches, is there already
    for _ in range(5):  # what earlier tests left, and what is freed by that in turn
        gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.disable()
        program(*arguments)
        spmdx.sync(wait=True)
        gc.collect()
        left = [thing for thing in gc.garbage if isinstance(thing, torch.Tensor)]
        assert not left, [(type(tensor), tensor.shape) for tensor in left]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
