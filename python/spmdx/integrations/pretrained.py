# SPDX-License-Identifier: Apache-2.0
"""Models of transformers from their checkpoints, of which a process reads what it holds."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._integrations.pretrained.model import (
    dtype_of,
    empty_model,
    finish,
    load_pretrained,
    report,
    require_class,
    require_folder,
)
from spmdx.errors import naming

__all__ = ["from_pretrained"]


def from_pretrained(
    cls: Any,
    path: str | os.PathLike,
    mesh: Mesh | None = None,
    plan: Mapping[str, Sequence[Any]] | str | None = "auto",
    *,
    dtype: torch.dtype | str = "auto",
    **config: Any,
) -> Any:
    """Build a model on device "spmdx" and fill it; each process reads the slices of its shards.

    The model is made without values, marked, and filled box by box from safetensors files.
    Weights that the library renames, stacks or joins as it loads them are read in slices, too;
    those that it converts in another way are read whole, one conversion at a time.

    Args:
        cls: a model class of transformers, or one of its Auto classes.
        path: the folder that ``save_pretrained`` wrote.
        mesh: the devices; None means the global mesh.
        plan: how parameters are cut: "auto" (as the model's own plans say), "fsdp" (each along
            the axis ``fsdp``), a dict from patterns of names to partition specs, or None.
        dtype: of the parameters; "auto" for that of the checkpoint.
        config: entries of the config that are to be others, and ``attn_implementation``.

    Returns:
        The model, in evaluation mode.

    Raises:
        CheckpointError: a file is missing or damaged, or a shape does not fit.
        ShardingError: the plan does not fit the model or the mesh.

    Example:
        >>> import tempfile, transformers, spmdx
        >>> small = transformers.LlamaConfig(
        ...     vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        ...     num_attention_heads=4,
        ... )
        >>> mesh = spmdx.Mesh(range(4), (4,), ("model",))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     transformers.LlamaForCausalLM(small).save_pretrained(folder)
        ...     model = from_pretrained(transformers.AutoModelForCausalLM, folder, mesh)
        >>> model.model.layers[0].mlp.up_proj.weight.partition_spec
        PartitionSpec('model', None)
    """
    with naming("from_pretrained"):
        require_class(cls)
        mesh = require_mesh(mesh)
        folder = require_folder(path)
        wanted = dtype_of(cls, folder, dtype)
        model, missing, unexpected = load_pretrained(
            lambda: empty_model(cls, folder, wanted, config), folder, mesh, plan
        )
        report(model, missing, unexpected)
        return finish(model, folder)
