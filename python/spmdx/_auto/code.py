# SPDX-License-Identifier: Apache-2.0
"""A strategy as lines of Python."""

from collections.abc import Iterable, Mapping
from typing import Any

from spmdx._auto.strategy import Strategy


def code_of(strategy: Strategy, memory_limit: int | None) -> str:
    """Lines that say the same; ``model`` and ``optimizer`` are the program's.

    ``memory_limit`` is of a device, in bytes; None: nothing is said of it.
    """
    axes = strategy.axes
    lines = [
        "import spmdx, torch, torch.utils._pytree",
        "",
        f"mesh = spmdx.Mesh(range({strategy.devices}), {_text(axes.values())}, {_text(axes)})",
    ]
    if memory_limit is not None:
        lines.append(f"spmdx.set_memory_limit({memory_limit})")
    if strategy.plan:
        lines += ["spmdx.nn.shard_module(", "    model,", "    mesh,", "    {"]
        lines += [f'        "{pattern}": {_text(spec)},' for pattern, spec in strategy.plan.items()]
        lines += ["    },", ")"]
    if strategy.pipe > 1:
        lines += _pipeline(strategy)
    if strategy.zero:
        lines.append(f'spmdx.nn.zero(model, optimizer, mesh, axis="data", stage={strategy.zero})')
    return "\n".join([*lines, "", "", *_split(strategy)]) + "\n"


def _text(values: Iterable[Any]) -> str:
    """A tuple, with strings in double quotes."""
    parts = [_one(value) for value in values]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _one(value: Any) -> str:
    if isinstance(value, tuple):
        return _text(value)
    return f'"{value}"' if isinstance(value, str) else str(value)


def _pipeline(strategy: Strategy) -> list[str]:
    lines = ["spmdx.nn.pipeline(", "    model,", "    mesh,", '    axis="pipe",']
    if isinstance(strategy.stages, Mapping):
        lines.append("    cuts={")
        lines += [f'        "{name}": {stage},' for name, stage in strategy.stages.items()]
        lines.append("    },")
    else:
        lines.append("    cuts=[")
        lines += [f'        "{name}",' for name in strategy.stages]
        lines.append("    ],")
    return [*lines, f'    schedule="{strategy.schedule}",', f"    chunks={strategy.chunks},", ")"]


def _split(strategy: Strategy) -> list[str]:
    """Functions that give the microbatches of a batch, and mark a tensor of one."""
    spec = strategy.batch_spec(2)
    count = strategy.microbatches
    what = "in one piece" if count == 1 else f"in {count} pieces"
    lines = [
        "def mark(tensor):",
        "    if not isinstance(tensor, torch.Tensor):",
        "        return tensor",
        '    tensor = tensor.to("spmdx")',
    ]
    if any(spec):
        lines += [
            f"    spec = ({_text(spec)[1:-1]}, *[None] * tensor.dim())[: tensor.dim()]",
            "    return spmdx.mark_sharding(tensor, mesh, spec) if any(spec) else tensor",
        ]
    else:
        lines.append("    return tensor")
    return [
        *lines,
        "",
        "",
        "def split(batch):",
        f'    """A batch {what}: a tensor, or tensors in containers."""',
        f"    parts = spmdx.auto.split(batch, {count})",
        "    return [torch.utils._pytree.tree_map(mark, part) for part in parts]",
    ]
