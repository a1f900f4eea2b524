# SPDX-License-Identifier: Apache-2.0
"""Rings of a graph: what reaches itself through others."""


def rings(edges: dict[str, set[str]]) -> list[set[str]]:
    """The sets of nodes, of two at least, that reach each other (Tarjan's components)."""
    found: list[set[str]] = []
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in sorted(edges.get(node, ())):
            if target not in number:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], number[target])
        if low[node] == number[node]:
            first = stack.index(node)
            if len(stack) > first + 1:
                found.append(set(stack[first:]))
            del stack[first:]

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found
