# SPDX-License-Identifier: Apache-2.0
"""A traced program as a segment of one device, which targets write."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from spmdx._export.traced import Of, traced
from spmdx._segments.compiler import NotTaken
from spmdx._segments.segment import DTYPES, Op, Segment
from spmdx.errors import ShardingError


class Program:
    """What computes tensors, or what a step does; see :func:`spmdx._export.traced.traced`.

    Attributes:
        traced: it, with annotations.
        numbers: numbers of Python by places among its inputs, which are constants of the segment.
        segment: its ops; behind its results are the values that annotations inside are of.
    """

    def __init__(self, of: Of):
        self.traced = traced(of)
        row = self.traced.row()
        self._lines, self._results = row["lines"], row["results"]
        self._expect_dtypes(row)
        self._expect_no_random_numbers(row["nodes"])
        self.numbers: dict[int, torch.Tensor] = row["numbers"]
        self.segment = _with_numbers(Segment.of_row("", row), self.numbers)

    def _expect_dtypes(self, row: dict[str, Any]) -> None:
        made = [(f"argument {i}", "", [kind]) for i, (_, kind) in enumerate(row["inputs"])]
        made += [
            (node["op"], line, node["types"])
            for node, line in zip(row["nodes"], self._lines, strict=True)
        ]
        for what, line, kinds in made:
            for dtype, _, _ in kinds:
                if dtype not in (*DTYPES, "unknown"):  # what an op does not give is unknown
                    raise ShardingError(
                        f"{_led(line)}{what} is of {dtype}. Expected one of {', '.join(DTYPES)}. "
                        "Convert it, or export what comes before and behind apart."
                    )

    def _expect_no_random_numbers(self, nodes: list[dict[str, Any]]) -> None:
        for node, line in zip(nodes, self._lines, strict=True):
            if node["op"].startswith("spmdx.random.") or ("opaque", "generator") in node["args"]:
                raise ShardingError(
                    f"{_led(line)}{node['op']} draws random numbers, which are spmdx's own. "
                    "Expected a step without them. Call eval() on the model, or draw them before "
                    "the step."
                )

    def arguments(self) -> list[torch.Tensor]:
        """What its inputs hold, without numbers."""
        return [t for i, t in enumerate(self.traced.inputs()) if i not in self.numbers]

    def results_alone(self) -> Segment:
        """The segment without what annotations inside are of."""
        outputs = self.segment.outputs[: self._results]
        return dataclasses.replace(self.segment, outputs=outputs)

    @contextlib.contextmanager
    def written_as(self, language: str) -> Iterator[None]:
        """A block in which ops that are not taken are errors with the user's lines."""
        try:
            yield
        except NotTaken as error:
            why = [self._line(place) + _bare(why) for place, why in sorted(error.reasons.items())]
            raise ShardingError(
                f"{'; '.join(why)}. Expected ops that are written as {language}. Write the step "
                "without them, or export what comes before and behind apart."
            ) from None

    def _line(self, place: int) -> str:
        """Of an op of the segment; constants come first, and have none."""
        return _led(self._lines[place - len(self.numbers)])


def _bare(why: str) -> str:
    return why.replace(f"{ShardingError.__module__}.{ShardingError.__name__}: ", "").rstrip(".")


def _led(line: str) -> str:
    return f"{line}: " if line else ""


def _with_numbers(segment: Segment, numbers: dict[int, torch.Tensor]) -> Segment:
    made = []
    for place, number in numbers.items():
        value, kind = segment.inputs[place]
        args: tuple[Any, ...] = ([], number.item(), DTYPES[kind.dtype], None, None, None)
        made.append(Op("aten.full", args, value, (kind,)))
    inputs = tuple(one for i, one in enumerate(segment.inputs) if i not in numbers)
    return dataclasses.replace(segment, inputs=inputs, ops=(*made, *segment.ops))
