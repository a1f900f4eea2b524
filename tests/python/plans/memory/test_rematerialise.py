# SPDX-License-Identifier: Apache-2.0
"""Under a memory limit plans compute values again: they fit, and no bit of a result changes."""

import itertools

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

LAYERS, WIDTH, HEADS, LENGTH, VOCAB = 6, 32, 4, 24, 48
SHARES = (0.8, 0.6, 0.4)  # of the peak without a limit


@pytest.fixture(autouse=True)
def as_before():
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    yield
    spmdx.set_memory_limit(None)


# --- the model ------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            part.view(b, t, HEADS, -1).transpose(1, 2)
            for part in self.qkv(self.norms[0](x)).split(WIDTH, -1)
        )
        scores = q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        mixed = (F.dropout(scores.softmax(-1), self.dropout) @ v).transpose(1, 2).reshape(b, t, -1)
        x = x + F.dropout(self.out(mixed), self.dropout)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    def __init__(self, dropout=0.0, checkpointed=()):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.checkpointed = checkpointed

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if i in self.checkpointed else block(x)
        return self.head(self.norm(x))


def train(device, annotate=None, *, rows=64, steps=2, dropout=0.0, checkpointed=(), parts=1):
    """Losses, gradients of the last step, and parameters; and the reports of all steps."""
    torch.manual_seed(0)
    spmdx.manual_seed(0)
    model = Gpt(dropout, checkpointed).double().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    place = annotate(model) if annotate else lambda ids: ids
    found, reports = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        ids = place(torch.randint(VOCAB, (rows, LENGTH + 1)).to(device))
        for part in ids.chunk(parts):
            logits = model(part[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / parts
            loss.backward()
            found.append(loss.detach())
        optimizer.step()
        if device == "spmdx":
            spmdx.mark_step()
            reports.append(spmdx.explain())
    found += [p.grad for p in model.parameters()] + list(model.parameters())
    return found, reports


def on_cpu(values):
    return [value.detach().cpu() for value in values]


def on(shape, axes, how):
    """Annotates a model on a mesh; gives what annotates a batch."""

    def annotate(model):
        mesh = spmdx.Mesh(range(torch.Size(shape).numel()), shape, axes)
        how(model, mesh)
        return lambda ids: spmdx.mark_sharding(ids, mesh, ("data", None))

    return annotate


def as_they_are(model, mesh):
    pass


def fully_sharded(model, mesh):
    spmdx.nn.fully_shard(model, mesh, "data")


def tensor_parallel(model, mesh):
    for block in model.blocks:
        spmdx.mark_sharding(block.up.weight, mesh, ("model", None))
        spmdx.mark_sharding(block.down.weight, mesh, (None, "model"))


def staged(model, mesh):
    spmdx.nn.pipeline(model, mesh, cuts=["blocks.3"])


WAYS = {
    "data 2": on((2,), ("data",), as_they_are),
    "data 3": on((3,), ("data",), as_they_are),
    "data 4": on((4,), ("data",), as_they_are),
    "data 8, uneven": on((8,), ("data",), as_they_are),
    "fsdp 4": on((4,), ("data",), fully_sharded),
    "2-D": on((2, 2), ("data", "model"), tensor_parallel),
    "2-D of 8": on((2, 4), ("data", "model"), tensor_parallel),
}


def peak_of(reports):
    return max(report.peak_bytes for report in reports)


# --- what must hold -------------------------------------------------------------------------------


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("way", WAYS)
def test_a_plan_fits_and_no_bit_of_a_result_changes(way, share):
    rows = 124 if "uneven" in way else 64
    wanted, free = train("spmdx", WAYS[way], rows=rows)
    limit = int(share * peak_of(free))
    spmdx.set_memory_limit(limit)
    got, reports = train("spmdx", WAYS[way], rows=rows)
    assert all(map(torch.equal, on_cpu(got), on_cpu(wanted)))
    assert peak_of(reports) <= limit
    assert reports[-1].memory.recomputed
    plain, _ = train("cpu", rows=rows)
    for a, b in zip(on_cpu(got), plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_random_numbers_come_out_equal():
    wanted, free = train("spmdx", WAYS["data 4"], dropout=0.3)
    spmdx.set_memory_limit(int(0.45 * peak_of(free)))
    got, reports = train("spmdx", WAYS["data 4"], dropout=0.3)
    assert all(map(torch.equal, on_cpu(got), on_cpu(wanted))) and reports[-1].memory.recomputed


def test_one_device_without_a_mesh():
    wanted, free = train("spmdx")
    limit = int(0.5 * peak_of(free))
    spmdx.set_memory_limit(limit)
    got, reports = train("spmdx")
    assert all(map(torch.equal, on_cpu(got), on_cpu(wanted))) and peak_of(reports) <= limit


@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (2, 4)], ids=str)
def test_stages_of_a_pipeline(shape):
    way = on(shape, ("pipe", "data"), staged)
    wanted, free = train("spmdx", way, parts=6)
    limit = int(0.7 * peak_of(free))
    spmdx.set_memory_limit(limit)
    got, reports = train("spmdx", way, parts=6)
    assert all(map(torch.equal, on_cpu(got), on_cpu(wanted))) and peak_of(reports) <= limit


def test_what_a_checkpoint_computes_again_may_be_computed_again():
    wanted, free = train("spmdx", WAYS["data 2"], checkpointed=(1, 3))
    limit = int(0.6 * peak_of(free))
    spmdx.set_memory_limit(limit)
    got, reports = train("spmdx", WAYS["data 2"], checkpointed=(1, 3))
    assert all(map(torch.equal, on_cpu(got), on_cpu(wanted))) and peak_of(reports) <= limit


# --- what it costs --------------------------------------------------------------------------------


def planned(checkpointed=()):
    """Flops and peak bytes of a device in the second step, which is planned alone."""
    with spmdx.plan_only():
        _, reports = train("spmdx", WAYS["data 2"], checkpointed=checkpointed)
    return reports[-1].flops, reports[-1].peak_bytes


def test_it_costs_no_more_than_the_best_checkpoints():
    flops, free = planned()
    all_of_them = tuple(range(LAYERS))
    placements = [
        planned(chosen)
        for count in range(LAYERS + 1)
        for chosen in itertools.combinations(all_of_them, count)
    ]
    assert len(placements) == 2**LAYERS
    uniform = planned(all_of_them)
    for share in SHARES:
        limit = int(share * free)
        spmdx.set_memory_limit(limit)
        mine, peak = planned()
        spmdx.set_memory_limit(None)
        assert peak <= limit
        best = min((cost for cost, bytes_ in placements if bytes_ <= limit), default=None)
        print(f"{share}: {mine - flops:,} again, best of checkpoints {best and best - flops}")
        assert best is None or mine <= best
        assert mine < uniform[0]


def test_the_report_says_what_is_computed_again():
    flops, free = planned()
    spmdx.set_memory_limit(int(0.6 * free))
    with spmdx.plan_only():
        _, reports = train("spmdx", WAYS["data 2"])
    rows = reports[-1].memory.recomputed
    assert sum(row.flops for row in rows) == reports[-1].flops - flops
    assert [row.ns for row in rows] == sorted((row.ns for row in rows), reverse=True)
    assert all(row.count > 0 and row.source.startswith("test_remat") for row in rows)
    assert "Computed again, so as to hold less" in str(reports[-1].memory)


# --- what is refused ------------------------------------------------------------------------------


def test_a_limit_that_cannot_be_met_is_an_error():
    _, free = train("spmdx", WAYS["data 2"], steps=1)
    spmdx.set_memory_limit(peak_of(free) // 20)
    with pytest.raises(spmdx.ShardingError, match="and the memory limit is "):
        train("spmdx", WAYS["data 2"], steps=1)
    spmdx.set_memory_limit(None)
    spmdx.mark_step()


def test_it_can_be_switched_off():
    _, free = train("spmdx", WAYS["data 2"], steps=1)
    spmdx.set_memory_limit(int(0.8 * peak_of(free)), recompute=False)
    with pytest.raises(spmdx.ShardingError, match="and the memory limit is "):
        train("spmdx", WAYS["data 2"], steps=1)
    spmdx.set_memory_limit(int(0.8 * peak_of(free)))
    spmdx.mark_step()
    with pytest.raises(spmdx.ShardingError, match="recompute is 3. Expected a bool. Write False."):
        spmdx.set_memory_limit("1 GiB", recompute=3)


@pytest.mark.parametrize("share", [0.999, 0.99, 0.97, 0.95])
def test_limits_just_below_the_peak(share):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

        def forward(self, x):
            for layer, act in zip(self.layers, (F.gelu, sorted_shares, torch.tanh), strict=True):
                x = act(layer(x))
            return x

    def sorted_shares(x):
        return x.softmax(-1).sort(-1).values

    def gradients():
        torch.manual_seed(0)
        model = Layers().double().to("spmdx")
        mesh = spmdx.Mesh(range(4), (4,), ("data",))
        x = spmdx.mark_sharding(torch.randn(256, 32).double().to("spmdx"), mesh, ("data", None))
        model(x).square().mean().backward()
        spmdx.mark_step()
        return [p.grad for p in model.parameters()], spmdx.explain().peak_bytes

    wanted, free = gradients()
    spmdx.set_memory_limit(int(share * free))
    got, peak = gradients()
    assert peak <= share * free and all(map(torch.equal, on_cpu(got), on_cpu(wanted)))
