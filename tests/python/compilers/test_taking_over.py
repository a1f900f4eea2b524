# SPDX-License-Identifier: Apache-2.0
"""Segments that are compiled while the program runs: it computes what PyTorch computes."""

import math
import shutil

import pytest
import small_training
import spmdx
import torch
from compilers_of_tests import OpByOp
from program_oracle import judge
from random_programs import draft
from small_training import OPTIMIZERS
from spmdx.auto import Strategy
from torch.nn import functional


class Block(torch.nn.Module):
    """Attention, norms, a mask and an embedding: views, reductions and gathers."""

    def __init__(self, width=12, heads=3, words=17):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.norm = torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 20), torch.nn.Linear(20, width)
        self.head, self.heads = torch.nn.Linear(width, words), heads

    def forward(self, tokens):
        x = self.words(tokens)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        later = torch.ones_like(scores[0, 0]).triu(1).bool()
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(functional.gelu(self.up(self.norm(x))))
        return self.head(x)


def training(place, optimizer="adamw", rows=6, steps=5, before=None):
    """Losses and parameters of some steps, whose learning rate falls; ``before`` each is called."""
    torch.manual_seed(0)
    model = Block().double()
    tokens = torch.randint(17, (rows, 5))
    model, tokens = place(model, tokens)
    chosen = OPTIMIZERS[optimizer](model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(chosen, lambda step: 0.9**step)
    losses = []
    for step in range(steps):
        if before:
            before(step)
        scores = model(tokens)
        loss = functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        chosen.step()
        chosen.zero_grad()
        schedule.step()
        losses.append(loss.detach())
        if tokens.device.type == "spmdx":
            spmdx.mark_step()
    return [loss.item() for loss in losses], [p.detach().cpu() for p in model.parameters()]


def on(strategy):
    """Places a model and its batch as the strategy says."""

    def place(model, tokens):
        model = model.to("spmdx")
        mesh = strategy.mesh()
        strategy.mark(model, None, mesh)
        return model, strategy.mark_batch(tokens, mesh)

    return place


def on_one(model, tokens):
    return model.to("spmdx"), tokens.to("spmdx")


def require_equal(found, expected, bound=1e-9):
    small_training.require_equal(found, expected, bound, bound)


PLACES = {
    "one": on_one,
    "data 2": on(Strategy(data=2)),
    "data 4, uneven": on(Strategy(data=4)),
    "fsdp 3": on(Strategy(data=3, zero=3)),
    "model 3": on(Strategy(model=3)),
    "data 2, model 2": on(Strategy(data=2, model=2)),
    "data 8, uneven": on(Strategy(data=8)),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("place", PLACES)
def test_compiled_steps_are_those_of_pytorch(place, optimizer):
    expected = training(lambda model, tokens: (model, tokens), optimizer)
    spmdx.set_compiler(OpByOp(), compile_now=True)
    require_equal(training(PLACES[place], optimizer), expected)
    segments = spmdx.explain().segments
    assert segments.segments and {s.state for s in segments.segments} == {"compiled"}
    assert segments.compiled_ops > 0.8 and segments.compiled_flops > 0.8


def test_kernels_take_over_while_the_program_runs():
    """A step begins at once; what is compiled in the meantime runs later ones."""
    states = []

    def before(step):
        if step == 3:
            assert spmdx.compilers.wait() > 0
        if step:
            states.append({s.state for s in spmdx.explain().segments.segments})

    expected = training(lambda model, tokens: (model, tokens))
    spmdx.set_compiler(OpByOp())
    require_equal(training(on_one, before=before), expected)
    assert states[-1] == {"compiled"}


def test_ops_that_a_compiler_leaves_run_between_its_segments():
    expected = training(lambda model, tokens: (model, tokens))
    left_alone = "aten._softmax", "aten.native_layer_norm", "aten.mm", "aten.bmm", "aten.view"
    spmdx.set_compiler(OpByOp(left_alone=left_alone), compile_now=True)
    require_equal(training(PLACES["data 2"]), expected)
    assert 0.3 < spmdx.explain().segments.compiled_ops < 0.9


def test_what_was_compiled_is_kept_for_the_next_program(tmp_path):
    notes = tmp_path / "notes"
    spmdx.set_compiler(OpByOp(notes), compile_now=True)
    first = training(PLACES["data 2"])
    compiled = notes.read_text().splitlines()
    assert compiled
    spmdx.set_compiler(None)
    spmdx.set_compiler(OpByOp(notes), compile_now=True)
    assert training(PLACES["data 2"])[0] == first[0]
    assert notes.read_text().splitlines() == compiled


def test_damaged_kernels_are_made_anew(tmp_path):
    notes = tmp_path / "notes"
    spmdx.set_compiler(OpByOp(notes), compile_now=True)
    expected = training(on_one)
    compiled = len(notes.read_text().splitlines())
    spmdx.set_compiler(None)
    spmdx._C.clear_cache()  # the next program knows no plan of this one
    kept = sorted((tmp_path / "cache").rglob("segment.txt"))
    assert len(kept) == compiled
    kept[0].write_text("half of")
    kept[1].unlink()
    (kept[2].parent / "manifest.json").write_text("{")
    spmdx.set_compiler(OpByOp(notes), compile_now=True)
    require_equal(training(on_one), expected, bound=0)
    assert len(notes.read_text().splitlines()) == compiled + 3


def test_a_file_where_a_kernel_is_kept_is_thrown_away(tmp_path):
    spmdx.set_compiler(OpByOp(), compile_now=True)
    expected = training(on_one)
    spmdx.set_compiler(None)
    spmdx._C.clear_cache()
    kept, *_ = (path.parent for path in (tmp_path / "cache").rglob("segment.txt"))
    shutil.rmtree(kept)
    kept.write_text("no folder")
    spmdx.set_compiler(OpByOp(), compile_now=True)
    require_equal(training(on_one), expected, bound=0)
    assert kept.is_dir()
    assert {row.state for row in spmdx.explain().segments.segments} == {"compiled"}


def test_a_compilers_name_leads_out_of_no_folder(tmp_path):
    compiler = OpByOp()
    compiler.name = "a/../../../elsewhere"
    spmdx.set_compiler(compiler, compile_now=True)
    training(on_one, steps=1)
    (folder,) = (tmp_path / "cache" / "segments").iterdir()
    assert list(folder.rglob("segment.txt")) and not list(tmp_path.glob("elsewhere*"))


def test_without_a_compiler_nothing_is_a_segment():
    training(on_one, steps=1)
    segments = spmdx.explain().segments
    assert segments.segments == [] and segments.compiled_ops == 0
    assert spmdx.compilers.get_compiler() is None


def test_random_numbers_stay_those_of_spmdx():
    def draws():
        spmdx.manual_seed(3)
        x = torch.ones(64, 8).to("spmdx")
        spmdx.mark_sharding(x, spmdx.Mesh(range(4), (4,), ("data",)), ("data", None))
        y = functional.dropout(x * 2 + 1, 0.5)
        z = torch.rand_like(y) + y * 3
        spmdx.mark_step()
        return z.cpu()

    expected = draws()
    spmdx.set_compiler(OpByOp(), compile_now=True)
    for _ in range(2):
        torch.testing.assert_close(draws(), expected, rtol=0, atol=0)
    assert spmdx.explain().segments.segments


def test_numbers_of_python_that_are_added_to_stay_such():
    """One of float64 is brought to where terms of a sum of float32 are, and the sum is float32."""
    mesh = spmdx.Mesh(range(4), (4,), ("data",))
    x, w = torch.randn(8, 3, 5), torch.randn(5)

    def total(place):
        rows, found = place(x), 0.0
        weight = w.clone().to(rows.device).requires_grad_()
        for t in range(3):
            found = found + (rows[:, t] * weight).square().mean()
        found.backward()
        return found.detach().cpu(), weight.grad.cpu()

    expected = total(lambda tensor: tensor)
    spmdx.set_compiler(OpByOp(), compile_now=True)
    found = total(lambda t: spmdx.mark_sharding(t.to("spmdx"), mesh, ("data", None, None)))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("first", range(20_000, 20_120, 30))
def test_random_programs_are_those_of_pytorch(first):
    spmdx.set_compiler(OpByOp(), compile_now=True)
    for seed in range(first, first + 30):
        verdict, said = judge(draft(seed))
        assert verdict != "different", f"seed {seed}: {said}"


def test_a_number_that_changes_is_no_constant():
    """clamp's bounds are constants for this compiler, until they differ."""
    x = torch.linspace(-3, 3, 12)
    found = []
    spmdx.set_compiler(OpByOp(), compile_now=True)
    for bound in (1.0, 1.0, 2.0, 0.5, 1.0):
        y = (x.to("spmdx") * 1.5).clamp(-bound, bound).exp() * bound
        spmdx.mark_step()
        found.append(y.cpu())
        torch.testing.assert_close(found[-1], (x * 1.5).clamp(-bound, bound).exp() * bound)
