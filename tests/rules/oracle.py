# SPDX-License-Identifier: Apache-2.0
"""One entry's calls: everything that their rules offer, tried, and what the rules miss."""

import dataclasses
from collections.abc import Callable

from spmdx._rules.trials import MESHES
from walk import calls_of, nodes_of, ops_in

MOST_GUESSED = 2  # calls of an op that missed layouts are looked for in


@dataclasses.dataclass
class Tally:
    """What became of an entry.

    Attributes:
        calls: different calls that were tried.
        tried: ways of cutting them.
        wrong: those that gave another result, with what was said.
        ops: names of ops that were tried, in expansions too.
        missed: bytes that layouts cost that would work and that no rule offers, by op and layout.
        without: ops without a rule.
    """

    calls: int = 0
    tried: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)
    ops: set[str] = dataclasses.field(default_factory=set)
    missed: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    without: set[str] = dataclasses.field(default_factory=set)


def judge(
    name: str,
    most: int | None = None,
    meshes=MESHES,
    guess: bool = False,
    at: Callable[[str], object] = lambda where: None,
) -> Tally:
    """Tries all calls of an entry.

    Args:
        name: the entry.
        most: samples of each dtype and size; None for all.
        meshes: shapes to try every call on.
        guess: look for layouts that rules miss instead. The ops are called with shards that may
            not belong together, which can end the process.
        at: is told which call is about to be tried.
    """
    tally, known, guessed = Tally(), set(), {}
    for call in calls_of(name, most):
        for node in recorded(call, known, tally):
            at(node.text)
            if not guess:
                try_node(node, meshes, tally)
            elif node.has_rule and guessed.setdefault(node.op, 0) < MOST_GUESSED:
                guessed[node.op] += 1
                tally.missed.setdefault(node.op, {}).update(node.missed(2))
    return tally


def recorded(call, known: set[int], tally: Tally) -> list:
    try:
        return nodes_of(call, known)
    except Exception as error:  # PyTorch takes the call
        tally.wrong.append(f"not recorded: {type(error).__name__}: {error}")
        return []


def try_node(node, meshes, tally: Tally) -> None:
    tally.calls += 1
    tally.ops.add(node.op)
    if not node.has_rule:
        tally.without.add(node.op)
        return
    for shape in meshes:
        found = node.try_rule(*shape, seen=lambda trial: tally.ops.update(ops_in(trial.text)))
        tally.tried += found.tried
        tally.wrong += found.wrong
