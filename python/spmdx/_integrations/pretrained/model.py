# SPDX-License-Identifier: Apache-2.0
"""A model of transformers without values, laid out as a plan says, then filled from files."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, GenerationConfig
from transformers.core_model_loading import build_glob_alternation

from spmdx._annotate.mesh import Mesh
from spmdx._checkpoint.agree import ONE_PLACE, agree_on_call, agree_on_tree, require_alike
from spmdx._checkpoint.format.boxes import Piece, wait_for_steps, whole
from spmdx._checkpoint.load import fill
from spmdx._checkpoint.safetensors.load import describe, digest, files_of
from spmdx._checkpoint.together import channel, together
from spmdx._checkpoint.tree import flatten
from spmdx._integrations.plans import apply_plan
from spmdx._integrations.pretrained.names import Found, parts_of
from spmdx._integrations.pretrained.parts import Part, Stored, Whole
from spmdx.errors import CheckpointError, ShardingError, warn

_SHOWN = 5
_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")


def require_class(cls: Any) -> None:
    if not isinstance(cls, type) or not (
        hasattr(cls, "from_config") or hasattr(cls, "_from_config")
    ):
        raise ShardingError(
            f"the class is {getattr(cls, '__name__', type(cls).__name__)!r}. Expected one of "
            "transformers, or a subclass of its PreTrainedModel. Write AutoModelForCausalLM."
        )


def require_folder(path: Any) -> Path:
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{path} is no folder with a config.json. Expected what save_pretrained writes. Fetch "
            "a model of the hub first: huggingface_hub.snapshot_download(name) gives its folder."
        )
    return folder


def empty_model(cls: Any, folder: Path, dtype: Any, options: dict[str, Any]) -> torch.nn.Module:
    """The model on the meta device, with the dtypes that it will have."""
    config = _config_with(cls, folder, options)
    make = cls.from_config if hasattr(cls, "from_config") else cls._from_config
    with torch.device("meta"):
        model = make(config, dtype=dtype)
    plan = model._get_dtype_plan(dtype)
    if plan:
        matches, by_group, _ = build_glob_alternation(list(plan))
        for name, tensor in model.state_dict(keep_vars=True).items():
            if (hit := matches.search(name)) is not None:
                tensor.data = tensor.data.to(plan[by_group[str(hit.lastgroup)]])
    model.config.name_or_path = str(folder)
    return model


def _read_config(cls: Any, folder: Path, **options: Any) -> Any:
    """As the class reads it: that of CLIPTextModel is a part of what CLIP's folder holds."""
    return (getattr(cls, "config_class", None) or AutoConfig).from_pretrained(folder, **options)


def _config_with(cls: Any, folder: Path, options: dict[str, Any]) -> Any:
    """The folder's config, with other entries; a dict changes some entries of a config in it."""
    config = _read_config(cls, folder)
    if getattr(config, "quantization_config", None) is not None:
        raise CheckpointError(
            f"{folder} is quantized. Expected weights in a dtype of PyTorch. Convert it first."
        )
    for name, value in options.items():
        if name == "torch_dtype" or not (hasattr(config, name) or name in _IMPLEMENTATIONS):
            mend = f"Write dtype={value!r}." if name == "torch_dtype" else "Leave it out."
            raise ShardingError(
                f"{name}={value!r} is no option here, and no entry of the config. Expected entries "
                f"of {type(config).__name__}. {mend}"
            )
    config = _read_config(cls, folder, **options)
    for name in _IMPLEMENTATIONS:
        if name in options:
            setattr(config, f"_{name}", options[name])
    return config


def dtype_of(cls: Any, folder: Path, said: Any) -> torch.dtype:
    """What is said; for "auto" that of the config, or of the first tensor of floats."""
    if isinstance(said, torch.dtype):
        return said
    if said != "auto":
        raise ShardingError(
            f"dtype is {said!r}. Expected a torch.dtype, or 'auto' for that of the checkpoint. "
            "Write dtype=torch.bfloat16."
        )
    config = _read_config(cls, folder)
    if isinstance(config.dtype, torch.dtype):
        return config.dtype
    saved = describe(files_of([folder]))
    floats = [s.dtype for s in saved.values() if s.dtype and s.dtype.is_floating_point]
    return floats[0] if floats else torch.float32


def load_pretrained(
    make: Callable[[], Any], folder: Path, mesh: Mesh, plan: Any
) -> tuple[Any, list[str], list[str]]:
    """The filled model, names that were missing, and names that it has no place for."""
    with channel() as exchange:
        agree_on_call(exchange, "from_pretrained", lambda: str(folder.absolute()))
        found: list[tuple[Any, Found, list[str]]] = []

        def look() -> str:
            model = make()
            files = files_of([folder])
            saved = describe(files)
            stored = {n: Stored(files[n], n, s.shape, s.dtype) for n, s in saved.items() if s.dtype}
            parts, unexpected = parts_of(model, stored)
            _require_shapes(model, parts, folder)
            found.append((model, parts, unexpected))
            return f"files with SHA-256 {digest(files, saved)}"

        require_alike(together(exchange, look), "finds", ONE_PLACE)
        model, parts, unexpected = found[0]
        missing = _lay_out(model, parts, mesh, plan)
        tensors = {n: t for n, t in model.state_dict().items() if n in parts}
        agree_on_tree(exchange, lambda: flatten(tensors))
        wait_for_steps()
        together(exchange, lambda: fill(tensors, lambda name: _filler(parts[name])))
    return model, missing, unexpected


def _require_shapes(model: Any, parts: Found, folder: Path) -> None:
    for name, tensor in model.state_dict().items():
        if name in parts and parts[name].shape != tuple(tensor.shape):
            raise CheckpointError(
                f"{name} has shape {tuple(tensor.shape)} in the model, and {parts[name].shape} in "
                f"{folder}. Expected the same. Give from_pretrained the config of the checkpoint."
            )


def _lay_out(model: Any, parts: Found, mesh: Mesh, plan: Any) -> list[str]:
    """Memory on the devices, as the plan cuts it; values only for what no file has."""
    model.to_empty(device="spmdx")
    model.tie_weights()
    apply_plan(model, mesh, plan)
    by_id: dict[int, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        by_id.setdefault(id(tensor), []).append(name)
    missing = []
    for name, tensor in model.state_dict(keep_vars=True).items():
        tensor._is_hf_initialized = any(each in parts for each in by_id[id(tensor)])
        if not tensor._is_hf_initialized:
            missing.append(name)
    for names in by_id.values():  # of several names, one is read
        for name in [name for name in names if name in parts][1:]:
            del parts[name]
    for buffer in model.buffers():
        if not hasattr(buffer, "_is_hf_initialized"):
            buffer._is_hf_initialized = False
    model.initialize_weights()
    for tensor in (*model.parameters(), *model.buffers()):
        tensor._is_hf_initialized = True
    return missing


def _filler(part: Part) -> Callable[[list[Piece]], None]:
    def fill_pieces(pieces: list[Piece]) -> None:
        everything = whole(part.shape)
        for box, target in pieces:
            if box.numel:
                part.read(box.inside(everything) if box.sizes else (), target)
        if isinstance(part, Whole):
            part.results.forget()

    return fill_pieces


def report(model: Any, missing: list[str], unexpected: list[str]) -> None:
    """One warning of names that only one side has, but for those that the model expects to."""
    ignored = model._keys_to_ignore_on_load_missing or ()
    missing = [n for n in missing if not any(re.search(pattern, n) for pattern in ignored)]
    passed = model._keys_to_ignore_on_load_unexpected or ()
    unexpected = [n for n in unexpected if not any(re.search(pattern, n) for pattern in passed)]
    for names, what in (
        (missing, "are in no file, and were drawn as the model draws them"),
        (unexpected, "are in a file, and the model has no place for them"),
    ):
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            warn(f"{', '.join(names[:_SHOWN])}{more} {what}. Check that the class fits the files.")


def finish(model: Any, folder: Path) -> Any:
    if model.can_generate() and (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model.eval()
