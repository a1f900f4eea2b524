# SPDX-License-Identifier: Apache-2.0
"""Exported programs: XLA's partition of them gives plain PyTorch's numbers; what is refused."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import spmdx
import torch

pytest.importorskip("jaxlib")
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "partitioners"))
from partitioner_programs import PROGRAMS, Put, mesh_of, run  # noqa: E402
from partitioner_row import BOUND, off_by, row_of  # noqa: E402
from partitioner_xla import Partitioned  # noqa: E402
from spmdx._targets import pjrt  # noqa: E402


@pytest.fixture
def mesh():
    return spmdx.Mesh(range(4), (4,), ("data",))


@pytest.mark.parametrize("name", PROGRAMS)
def test_xla_partitions_the_program_and_gives_the_numbers_of_pytorch(name):
    assert row_of(name).off <= BOUND


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_one_device_gives_the_numbers_of_pytorch(name):
    expected, results = run(name, Put()), run(name, Put(mesh_of(name)))
    text = spmdx.export.stablehlo(results, sharded=False)
    assert "sdy" not in text
    found = pjrt.loaded(pjrt.compiled(text))(spmdx.export.arguments(results))
    assert off_by(found, expected) <= BOUND


@pytest.mark.parametrize(
    "sizes, spec",
    [
        ((2,), ("a", None)),
        ((3,), (None, "a")),
        ((8,), ("a", None)),
        ((2, 4), ("b", "a")),
        ((2, 4), (("a", "b"), None)),
        ((4, 2), (None, ("b", "a"))),
        ((2, 2), (None, "b")),
        ((2, 2, 2), ("c", ("a", "b"))),
    ],
    ids=str,
)
def test_xla_lays_what_comes_in_and_goes_out_where_spmdx_does(sizes, spec):
    mesh = spmdx.Mesh(range(torch.Size(sizes).numel()), sizes, ("a", "b", "c")[: len(sizes)])
    whole = torch.arange(24.0 * 24).reshape(24, 24)
    x = spmdx.mark_sharding(whole.to("spmdx"), mesh, spec)
    y = spmdx.mark_sharding((x + 1).t(), mesh, spec[::-1])
    z = spmdx.mark_sharding(x * 2, mesh, spec[::-1])
    partitioned = Partitioned(spmdx.export.stablehlo([y, z]), mesh.size())
    found = partitioned.shards([whole])
    alone = Partitioned(spmdx.export.stablehlo(x.sum()), mesh.size())  # nothing else cuts x
    (boxes,) = alone.boxes([whole.shape])
    for box, shard in zip(boxes, x.local_shards, strict=True):
        assert torch.equal(whole[box], shard.data)
    for result, shards in zip([y, z], found, strict=True):
        for mine, shard in zip(shards, result.local_shards, strict=True):
            assert torch.equal(mine, shard.data)


def test_values_within_are_laid_as_annotated(mesh):
    x = spmdx.mark_sharding(torch.ones(8, 12).to("spmdx"), mesh, ("data", None))
    inner = spmdx.mark_sharding(x.tanh(), mesh, (None, "data"))
    assert Partitioned(spmdx.export.stablehlo(inner.sum(0)), 4).collectives() == [
        ("all_to_all", 4 * 2 * 12 * 3 // 4)
    ]


def test_annotations_do_not_matter_to_the_program_of_one_device(mesh, tmp_path):
    x = spmdx.mark_sharding(torch.ones(6, 8).to("spmdx"), mesh, ("data", None))
    y = x * 2
    text = spmdx.export.stablehlo(y, sharded=False)
    assert "sdy" not in text and "tensor<6x8xf32>" in text
    if importlib.util.find_spec("onnx"):
        spmdx.export.onnx(y, tmp_path / "program.onnx")
        assert (tmp_path / "program.onnx").stat().st_size
    with pytest.raises(spmdx.ShardingError, match="test_export.py.*shards of different sizes"):
        spmdx.export.stablehlo(y)


def test_what_was_exported_still_runs(mesh):
    x = spmdx.mark_sharding(torch.arange(8.0).to("spmdx"), mesh, ("data",))
    y = x * 2
    assert "stablehlo.multiply" in spmdx.export.stablehlo(y)
    assert torch.equal(y.cpu(), torch.arange(8.0) * 2)


def test_numbers_of_python_are_constants_and_tensors_are_arguments():
    x, y = torch.ones(3).to("spmdx"), torch.zeros(3).to("spmdx")
    assert len(spmdx.export.arguments([(x * 2.5 + y) / 3])) == 2
    assert "2.50000" in spmdx.export.stablehlo(x * 2.5 + y)


def test_only_what_is_asked_for_is_exported(mesh):
    x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh, ("data", None))
    wanted, other = x.exp(), torch.ones(5).to("spmdx").sin()
    text = spmdx.export.stablehlo(wanted[:, 0])
    assert "sine" not in text and "-> (tensor<8xf32>)" in text
    assert other.shape == (5,)


def trained(model, optimizer, x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def tensors_of(model, optimizer):
    return [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]


def test_a_step_is_exported_up_to_its_end_and_changes_nothing(mesh):
    torch.manual_seed(0)
    make = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    ours = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    ours.load_state_dict(make.state_dict())
    ours, batch = ours.to("spmdx"), torch.randn(8, 8)
    x = spmdx.mark_sharding(batch.to("spmdx"), mesh, ("data", None))
    optimizer = torch.optim.AdamW(ours.parameters(), lr=0.05)
    calls = []

    def step():
        calls.append(1)
        loss = trained(ours, optimizer, x)
        spmdx.mark_step()
        return loss.item()

    first = step()
    before = [t.detach().clone().cpu() for t in tensors_of(ours, optimizer)]
    text, given = spmdx.export.stablehlo(step), spmdx.export.arguments(step)
    assert len(calls) == 1  # what a step changes is put back, this list as well
    assert all(map(torch.equal, before, [t.detach().cpu() for t in tensors_of(ours, optimizer)]))
    found = Partitioned(text, 4).run(given)

    plain = torch.optim.AdamW(make.parameters(), lr=0.05)
    assert trained(make, plain, batch).item() == pytest.approx(first, rel=1e-5)
    loss = trained(make, plain, batch).item()
    for want in [torch.tensor(loss), *make.parameters()]:
        alike = [t for t in found if t.shape == want.shape]
        assert any(torch.allclose(t, want.detach(), rtol=1e-4, atol=1e-5) for t in alike)
    assert step() == pytest.approx(loss, rel=1e-5)


def test_programs_for_meshes_that_are_not_there_are_exported():
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(512), (64, 8), ("data", "model"))
        x = spmdx.mark_sharding(torch.ones(4096, 1024).to("spmdx"), mesh, ("data", "model"))
        text = spmdx.export.stablehlo(x @ torch.ones(1024, 64).to("spmdx"))
    assert 'sdy.mesh @mesh = <["data"=64, "model"=8]>' in text
    assert '1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>}' in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_model_of_onnx_gives_the_numbers_of_pytorch(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    expected, results = run(name, Put()), run(name, Put(mesh_of(name)))
    spmdx.export.onnx(results, tmp_path / "program.onnx")
    session = runtime.InferenceSession(
        tmp_path / "program.onnx", providers=["CPUExecutionProvider"]
    )
    given = [t.numpy() for t in spmdx.export.arguments(results)]
    read = {one.name: given[int(one.name.removeprefix("value_"))] for one in session.get_inputs()}
    found = session.run([f"result_{i}" for i in range(len(expected))], read)
    assert off_by(list(map(torch.tensor, found)), expected) <= BOUND


def message_of(call):
    with pytest.raises(spmdx.errors.ShardingError) as caught:
        call()
    return re.sub(r"test_export\.py:\d+", "here", str(caught.value))


def on_mesh(mesh, shape, *spec):
    return spmdx.mark_sharding(torch.ones(shape).to("spmdx"), mesh, spec)


def test_random_numbers_are_refused(mesh):
    x = on_mesh(mesh, (8, 4), "data", None)
    y = torch.nn.functional.dropout(x)
    assert message_of(lambda: spmdx.export.stablehlo(y)) == (
        "here: export.stablehlo: here: spmdx.random.bernoulli draws random numbers, which are "
        "spmdx's own. Expected a step without them. Call eval() on the model, or draw them before "
        "the step."
    )


@pytest.mark.parametrize("op", [torch.bernoulli, torch.poisson, lambda p: p.multinomial(2)])
def test_random_numbers_of_tensors_are_refused(mesh, op):
    y = op(on_mesh(mesh, (8, 4), "data", None))
    assert "draws random numbers" in message_of(lambda: spmdx.export.stablehlo(y))


def test_ops_without_stablehlo_are_refused(mesh):
    y = torch.linalg.qr(on_mesh(mesh, (4, 4, 4), "data", None, None))[0]
    assert message_of(lambda: spmdx.export.stablehlo(y)) == (
        "here: export.stablehlo: here: aten.linalg_qr: aten.linalg_qr is not written as StableHLO: "
        "it has no row. Expected ops that are written as StableHLO. Write the step without them, "
        "or export what comes before and behind apart."
    )


def test_complex_numbers_are_refused(mesh):
    y = torch.fft.fft(on_mesh(mesh, (8, 4), "data", None)).abs()
    assert message_of(lambda: spmdx.export.stablehlo(y)) == (
        "here: export.stablehlo: here: aten._fft_r2c is of c64. Expected one of f64, f32, bf16, "
        "f16, i64, i32, i16, i8, u8, b8. Convert it, or export what comes before and behind apart."
    )


def test_shards_of_different_sizes_are_refused_outside_of_the_program(mesh):
    y = on_mesh(mesh, (7, 4), "data", None).exp()
    assert message_of(lambda: spmdx.export.stablehlo(y)) == (
        "here: export.stablehlo: here: Shardy has no attribute for f32[7@data, 4]: it has shards "
        "of different sizes along dim 0. Expected a size that is a multiple of 4 where values come "
        "in or go out. Pad it, or cut another dim."
    )


def test_stages_are_refused():
    mesh = spmdx.Mesh(range(4), (2, 2), ("pipe", "data"))
    x = torch.ones(8, 4).to("spmdx")
    y = spmdx.mark_stage(x.exp(), mesh, 1)
    message = message_of(lambda: spmdx.export.stablehlo(y.sin()))
    assert "lies on a stage, or on hosts. Expected a value on all devices of the mesh." in message


def test_two_meshes_are_refused(mesh):
    x, other = on_mesh(mesh, (8,), "data"), spmdx.Mesh(range(4, 8), (4,), ("data",))
    y = on_mesh(other, (8,), "data").exp()
    message = message_of(lambda: spmdx.export.stablehlo([x.exp(), y]))
    assert "one step uses tensors of two meshes" in message


def test_a_tensor_that_is_computed_is_refused():
    x = torch.ones(4).to("spmdx")
    assert message_of(lambda: spmdx.export.stablehlo([x.exp(), x])) == (
        "here: export.stablehlo: tensor 1 is computed already, so nothing is traced for it. "
        "Expected one that no step has computed. Export it before spmdx.mark_step() and before it "
        "is read, or export the function of the step."
    )


@pytest.mark.parametrize("of, kind", [(3, "a int"), ([], "an empty list"), ({}, "a dict")])
def test_what_is_no_program_is_refused(of, kind):
    assert message_of(lambda: spmdx.export.stablehlo(of)).startswith(
        f"here: export.stablehlo: what is exported is {kind}. Expected a tensor, a list of tensors"
    )


def test_tensors_elsewhere_are_refused():
    assert "on device 'spmdx'" in message_of(lambda: spmdx.export.stablehlo(torch.ones(3)))


def test_a_step_that_traces_nothing_or_reads_is_refused(mesh):
    x = on_mesh(mesh, (8, 4), "data", None)
    assert message_of(lambda: spmdx.export.stablehlo(lambda: None)) == (
        "here: export.stablehlo: the step traces nothing. Expected one that computes tensors on "
        "device 'spmdx'. Export a function that calls the model."
    )
    message_of(lambda: spmdx.export.stablehlo(lambda: x.sum().item()))
    assert x.sum().item() == 32
