# SPDX-License-Identifier: Apache-2.0
"""A strategy as lines of Python."""

from collections.abc import Iterable, Mapping
from typing import Any

from spmdx._auto.strategy import Strategy


def code_of(strategy: Strategy) -> str:
    """Lines that say the same; ``model`` and ``optimizer`` are the program's."""
    axes = strategy.axes
    lines = [
        "import spmdx",
        "",
        f"mesh = spmdx.Mesh(range({strategy.devices}), {_text(axes.values())}, {_text(axes)})",
    ]
    if strategy.plan:
        lines += ["spmdx.nn.shard_module(", "    model,", "    mesh,", "    {"]
        lines += [f'        "{pattern}": {_text(spec)},' for pattern, spec in strategy.plan.items()]
        lines += ["    },", ")"]
    if strategy.zero:
        lines.append(f'spmdx.nn.zero(model, optimizer, mesh, axis="data", stage={strategy.zero})')
    if strategy.pipe > 1:
        lines += _pipeline(strategy)
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
    """A function that gives the microbatches of a batch, each tensor of which is cut."""
    spec = strategy.batch_spec(2)
    what = "in one piece" if strategy.microbatches == 1 else f"in {strategy.microbatches} pieces"
    lines = [
        "def split(batch):",
        f'    """A batch {what}: a tensor, or tensors in a tuple, list or dict."""',
        "    if isinstance(batch, dict):",
        "        parts = zip(*map(split, batch.values()))",
        "        return [dict(zip(batch, part)) for part in parts]",
        "    if isinstance(batch, (tuple, list)):",
        "        return [type(batch)(part) for part in zip(*map(split, batch))]",
        f'    pieces = [p.to("spmdx") for p in batch.chunk({strategy.microbatches})]',
    ]
    if any(spec):
        cut = _text(spec)[1:-1]
        lines += [
            f"    spec = ({cut}, *[None] * (batch.dim() - 2))[: batch.dim()]",
            "    return [spmdx.mark_sharding(p, mesh, spec) for p in pieces]",
        ]
    else:
        lines.append("    return pieces")
    return lines
