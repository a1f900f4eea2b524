# SPDX-License-Identifier: Apache-2.0
"""Plain torch.distributed.checkpoint reads what spmdx writes, writes what it reads, and shards."""

import pickle

import pytest
import spmdx
import torch
import torch.distributed.checkpoint as dcp
from checkpoints import LAYOUTS, assert_same_bits, mesh_of, placed, run_python, values, zeros
from messages import eight_devices
from spmdx.checkpoint import CheckpointError, load, rng_state, save

eight_devices()

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def trained(seed, spec):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(10, 7), torch.nn.Linear(7, 5)).to("spmdx")
    spmdx.mark_sharding(model[0].weight, mesh_of(8), spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(8, 10).to("spmdx")).square().mean().backward()
    optimizer.step()
    return model, optimizer


def tensors_in(optimizer):
    states = optimizer.state_dict()["state"].items()
    return {f"{i}.{name}": t for i, state in states for name, t in state.items()}


def test_plain_calls_shard_the_model_and_the_optimizer(tmp_path):
    model, optimizer = trained(0, ("b", "a"))
    dcp.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": rng_state()},
        checkpoint_id=tmp_path,
    )
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    chunks = metadata.state_dict_metadata["model.0.weight"].chunks
    moments = metadata.state_dict_metadata["optimizer.state.0.exp_avg"].chunks
    assert len(chunks) == len(moments) == 8
    assert {tuple(c.sizes) for c in chunks} == {(4, 3), (3, 3), (4, 1), (3, 1)}
    expected = {name: t.cpu() for name, t in model.state_dict().items()}
    moments = {name: t.cpu() for name, t in tensors_in(optimizer).items()}
    other, other_optimizer = trained(1, (None, "a"))
    state = {"model": other.state_dict(), "optimizer": other_optimizer.state_dict()}
    dcp.load(state, checkpoint_id=tmp_path)
    assert_same_bits(other.state_dict(), expected)
    assert_same_bits(tensors_in(other_optimizer), moments)
    assert spmdx.get_sharding(other[0].weight).spec == (None, "a")
    load({"model": other, "optimizer": other_optimizer, "rng": rng_state()}, tmp_path)
    assert_same_bits(other.state_dict(), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_writes_what_we_read_and_reads_what_we_write(layout, tmp_path):
    tensors = values()
    dcp.save(placed(tensors, layout, 8), checkpoint_id=tmp_path / "theirs")
    save(placed(tensors, layout, 4), tmp_path / "ours")
    for target in placed(tensors, "2-D", 8, like=True), zeros(tensors):
        load(target, tmp_path / "theirs")
        assert_same_bits(target, tensors)
    for target in placed(tensors, "dim 1", 3, like=True), zeros(tensors):
        dcp.load(target, checkpoint_id=tmp_path / "ours")
        assert_same_bits(target, tensors)


def test_a_plain_load_touches_no_clone_and_refuses_views(tmp_path):
    dcp.save({"t": torch.ones(16)}, checkpoint_id=tmp_path)
    base = spmdx.mark_sharding(torch.zeros(16).to("spmdx"), mesh_of(8), ("a",))
    clone = base.clone()
    spmdx.sync()
    twice = base * 2
    dcp.load({"t": base}, checkpoint_id=tmp_path)
    assert clone.cpu().unique().tolist() == twice.cpu().unique().tolist() == [0.0]
    assert base.cpu().unique().tolist() == [1.0]
    longer = torch.zeros(20).to("spmdx")
    with pytest.raises(dcp.api.CheckpointException, match="is a view of another one"):
        dcp.load({"t": longer[2:18]}, checkpoint_id=tmp_path)
    assert longer.cpu().unique().tolist() == [0.0]


def test_a_plain_load_that_fails_leaves_the_values(tmp_path):
    dcp.save({"a": torch.ones(8), "b": torch.ones(8)}, checkpoint_id=tmp_path)
    state = {"a": torch.full((8,), 5.0).to("spmdx"), "b": torch.full((9,), 6.0).to("spmdx")}
    spmdx.mark_sharding(state["a"], mesh_of(8), ("a",))
    with pytest.raises(dcp.api.CheckpointException, match="Size mismatch"):
        dcp.load(state, checkpoint_id=tmp_path)
    assert state["a"].cpu().unique().tolist() == [5.0]


def test_other_tensors_lack_the_protocol():
    for name in "__create_write_items__", "__create_chunk_list__", "__get_tensor_shard__":
        assert not hasattr(torch.ones(2), name)
        assert not hasattr(torch.nn.Parameter(torch.ones(2)), name)
        assert hasattr(torch.ones(2).to("spmdx"), name)


WITHOUT_SPMDX = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
folder = sys.argv[1]
state = {"model": {"w": torch.zeros(16, 8)}, "step": 0, "sizes": None}
dcp.load(state, checkpoint_id=folder)
assert torch.equal(state["model"]["w"], torch.arange(128.0).reshape(16, 8)), state
assert state["step"] == 3 and state["sizes"] == [1, 2]
dcp_to_torch_save(folder, folder + ".pt")
again = torch.load(folder + ".pt", weights_only=True)
assert torch.equal(again["model"]["w"], state["model"]["w"]) and again["step"] == 3
assert "spmdx" not in sys.modules
other = {"w": torch.full((5, 3), 4.0), "list": [torch.ones(2), {"n": 5}]}
dcp.save(other, checkpoint_id=folder + "2")
"""


def test_a_process_without_spmdx_reads_and_writes(tmp_path):
    w = torch.arange(128.0).reshape(16, 8).to("spmdx")
    spmdx.mark_sharding(w, mesh_of(8), ("a", "b"))
    save({"model": {"w": w}, "step": 3, "sizes": [1, 2]}, tmp_path / "c")
    run_python(WITHOUT_SPMDX, tmp_path / "c")
    target = {"w": torch.zeros(5, 3).to("spmdx"), "list": [torch.zeros(2), {"n": 0}]}
    spmdx.mark_sharding(target["w"], mesh_of(8), ("a", "b"))
    load(target, tmp_path / "c2")
    assert target["w"].cpu().unique().tolist() == [4.0]
    assert target["list"][0].tolist() == [1.0, 1.0] and target["list"][1] == {"n": 5}


class Evil:
    def __reduce__(self):
        return (open, ("owned", "w"))


class Setter:
    """Pickles as a change of a class that is admitted."""

    def __reduce__(self):
        return (torch.Size, ((),), (None, {"x": 1}))


@pytest.mark.parametrize("thing", [Evil(), Setter(), {"a": [Evil()]}, 7, None])
def test_metadata_that_is_no_metadata_runs_nothing(thing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dcp.save({"a": torch.ones(8)}, checkpoint_id=tmp_path / "c")
    (tmp_path / "c" / ".metadata").write_bytes(pickle.dumps(thing))
    with pytest.raises(CheckpointError, match="cannot be read: .*records of its own only"):
        load({"a": torch.zeros(8)}, tmp_path / "c")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("path", ["/etc/hostname", "../other", "..", ""])
def test_a_file_elsewhere_is_never_opened(path, tmp_path):
    dcp.save({"a": torch.ones(8)}, checkpoint_id=tmp_path)
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    next(iter(metadata.storage_data.values())).relative_path = path
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match="names the file .* in its own folder"):
        load({"a": torch.zeros(8)}, tmp_path)


def test_a_value_that_runs_code_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dcp.save({"a": Evil()}, checkpoint_id=tmp_path / "c")
    with pytest.raises(CheckpointError, match="a cannot be read from"):
        load({"a": 0}, tmp_path / "c")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("change", ["gap", "overlap", "outside", "missing"])
def test_chunks_that_do_not_make_the_tensor_are_refused(change, tmp_path):
    w = spmdx.mark_sharding(torch.ones(8).to("spmdx"), mesh_of(8), ("a",))
    dcp.save({"w": w}, checkpoint_id=tmp_path)
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    described = metadata.state_dict_metadata["w"]
    if change == "gap":
        described.chunks.pop(1)
    elif change == "overlap":
        described.chunks[1] = described.chunks[0]
    elif change == "outside":
        described.chunks[1].sizes = torch.Size([9])
    else:
        del metadata.storage_data[dcp.metadata.MetadataIndex("w", (2,))]
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError):
        load({"w": torch.zeros(8)}, tmp_path)
