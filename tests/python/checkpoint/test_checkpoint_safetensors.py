# SPDX-License-Identifier: Apache-2.0
"""safetensors: what spmdx writes others read, what others write it reads by the slice."""

import json
import os

import pytest
import spmdx
import torch
import transformers
from checkpoints import LAYOUTS, assert_same_bits, mesh_of, placed, values, zeros
from messages import eight_devices
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from spmdx.checkpoint import CheckpointError, load_safetensors, save_safetensors

eight_devices()


def tensors():
    return values() | {
        "tiny": torch.arange(6).to(torch.float8_e4m3fn).reshape(2, 3),
        "half": torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).half(),
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_ways_with_the_library(layout, tmp_path):
    expected = tensors()
    save_file(expected, tmp_path / "theirs.safetensors")
    target = placed(expected, layout, 8, like=True)
    assert load_safetensors(target, tmp_path / "theirs.safetensors") == ([], [])
    assert_same_bits(target, expected)
    assert target["even"].partition_spec == placed(expected, layout, 8)["even"].partition_spec
    save_safetensors(target, tmp_path / "ours.safetensors", metadata={"by": "me"})
    found = load_file(tmp_path / "ours.safetensors")
    assert_same_bits({name: found[name] for name in expected}, expected)
    with safe_open(tmp_path / "ours.safetensors", "pt") as file:
        assert file.metadata() == {"by": "me", "format": "pt"}
    assert sorted(os.listdir(tmp_path)) == ["ours.safetensors", "theirs.safetensors"]


def test_several_files_with_an_index(tmp_path):
    expected = values()
    save_safetensors(placed(expected, "2-D", 8), tmp_path, max_shard_size=400)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2 and files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in expected.values())
    assert sorted(os.listdir(tmp_path)) == [*files, "model.safetensors.index.json"]
    paths = [tmp_path / name for name in files]
    for path in (tmp_path, tmp_path / "model.safetensors.index.json", paths):
        target = placed(expected, "dim 1", 3, like=True)
        load_safetensors(target, path)
        assert_same_bits(target, expected)
    save_safetensors(expected, tmp_path)  # one file now: nothing of the other save is left
    assert os.listdir(tmp_path) == ["model.safetensors"]
    target = zeros(expected)
    load_safetensors(target, tmp_path)
    assert_same_bits(target, expected)


def test_a_folder_without_an_index(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "y.safetensors")
    target = {"a": torch.zeros(2).to("spmdx"), "b": torch.zeros(3)}
    load_safetensors(target, tmp_path)
    assert target["a"].cpu().sum() == 2 and target["b"].sum() == 3


def test_only_the_slices_of_the_shards_are_read(tmp_path, monkeypatch):
    import spmdx._checkpoint.safetensors.load as module

    save_file({"w": torch.arange(32.0).reshape(8, 4)}, tmp_path / "w.safetensors")
    opened, asked = module.opened, []

    class Part:
        def __init__(self, part):
            self._part = part

        def __getattr__(self, name):
            return getattr(self._part, name)

        def __getitem__(self, box):
            asked.append(box)
            return self._part[box]

    class File:
        def __init__(self, file):
            self._file = file

        def __enter__(self):
            self._file.__enter__()
            return self

        def __exit__(self, *error):
            return self._file.__exit__(*error)

        def keys(self):
            return self._file.keys()

        def get_slice(self, name):
            return Part(self._file.get_slice(name))

    monkeypatch.setattr(module, "opened", lambda path: File(opened(path)))
    w = spmdx.mark_sharding(torch.zeros(8, 4).to("spmdx"), mesh_of(8), ("a", None))
    load_safetensors({"w": w}, tmp_path / "w.safetensors")
    assert asked == [(slice(2 * i, 2 * i + 2), slice(0, 4)) for i in range(4)]
    assert torch.equal(w.cpu(), torch.arange(32.0).reshape(8, 4))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 4)
        self.middle = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 16, bias=False)
        self.head.weight = self.embed.weight


def test_parameters_with_two_names(tmp_path):
    model = Tied().to("spmdx")
    spmdx.mark_sharding(model.embed.weight, mesh_of(8), (None, "b"))
    expected = {name: t.cpu() for name, t in model.state_dict().items()}
    save_safetensors(model, tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert "head.weight" not in file.keys()  # noqa: SIM118
        assert file.metadata()["head.weight"] == "embed.weight"
    other = Tied().to("spmdx")
    load_safetensors(other, tmp_path)
    assert_same_bits(other.state_dict(), expected)
    assert other.head.weight is other.embed.weight
    renamed = {n: t.clone() for n, t in expected.items() if n != "embed.weight"}
    save_file(renamed, tmp_path / "model.safetensors")
    third = Tied().to("spmdx")
    load_safetensors(third, tmp_path)
    assert_same_bits(third.state_dict(), expected)


def test_a_model_of_transformers_and_its_own_loader(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=8)
    torch.manual_seed(0)
    plain = GPT2LMHeadModel(config)
    plain.save_pretrained(tmp_path / "theirs", max_shard_size="8KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    torch.manual_seed(1)
    model = GPT2LMHeadModel(config).to("spmdx")
    spmdx.mark_sharding(model.transformer.wte.weight, mesh_of(8), (None, ("a", "b")))
    load_safetensors(model, tmp_path / "theirs")
    assert_same_bits(model.state_dict(), plain.state_dict())
    config.save_pretrained(tmp_path / "ours")
    save_safetensors(model, tmp_path / "ours", max_shard_size=8000)
    again = GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    assert_same_bits(again.state_dict(), plain.state_dict())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("cut", "is damaged or no safetensors file: .* Expected one"),
        ("text", "is damaged or no safetensors file: .* Expected one"),
        ("missing", "No such file"),
        ("index", "is no index of safetensors files: .*weight_map"),
        ("lacks", "one.safetensors lacks b. Expected it there, as the index says"),
        ("shape", r"a is a tensor of shape \(3,\) .* a tensor of shape \(2,\)"),
        ("dtype", "Load into a tensor of torch.float32 and convert"),
        ("empty", "there is no file that ends with .safetensors"),
    ],
)
def test_what_cannot_be_loaded(change, said, tmp_path):
    path = tmp_path / "one.safetensors"
    save_file({"a": torch.ones(2)}, path)
    target = {"a": torch.zeros(2).to("spmdx")}
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif change == "text":
        path.write_text("no weights")
    elif change == "missing":
        path.unlink()
    elif change in ("index", "lacks"):
        text = {"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}
        path = tmp_path / "model.safetensors.index.json"
        path.write_text(json.dumps(text) if change == "lacks" else "{}")
    elif change == "empty":
        path = tmp_path / "folder"
        path.mkdir()
    else:
        target = {"a": torch.zeros(3) if change == "shape" else torch.zeros(2).half()}
    with pytest.raises(CheckpointError, match=said):
        load_safetensors(target, path)
    assert not target["a"].cpu().any()


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(CheckpointError, match="step is a int. Expected tensors only"):
        save_safetensors({"step": 1}, tmp_path / "a")
    with pytest.raises(CheckpointError, match="c is torch.complex128 .* Convert it first"):
        save_safetensors({"c": torch.zeros(1, dtype=torch.complex128)}, tmp_path / "a")
    both = {"a": torch.ones(9), "b": torch.ones(9)}
    with pytest.raises(CheckpointError, match="is one file, but max_shard_size wants 2"):
        save_safetensors(both, tmp_path / "a.safetensors", max_shard_size=40)


def test_a_save_that_fails_leaves_the_weights_before(tmp_path, monkeypatch):
    save_safetensors({"a": torch.ones(2)}, tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(CheckpointError, match="No space left on device"):
            save_safetensors({"a": torch.zeros(2)}, tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert load_file(tmp_path / "model.safetensors")["a"].tolist() == [1.0, 1.0]


def test_a_sharded_model_is_saved_as_transformers_saves_it(tmp_path):
    sizes = {"vocab_size": 96, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).to("spmdx")
    spmdx.fully_shard(model, spmdx.Mesh(range(4), (4,), ("fsdp",)))
    model.save_pretrained(tmp_path)
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert again.lm_head.weight is again.transformer.wte.weight
    assert_same_bits(again.state_dict(), {n: t.cpu() for n, t in model.state_dict().items()})


def test_the_library_sees_which_tensors_share_memory(tmp_path):
    x = torch.arange(6.0).to("spmdx")
    save_file({"x": x, "y": x.clone()}, tmp_path / "apart")
    assert_same_bits(load_file(tmp_path / "apart"), {"x": x.cpu(), "y": x.cpu()})
    with pytest.raises(RuntimeError, match="share memory"):
        save_file({"x": x, "y": x[1:]}, tmp_path / "tied")
