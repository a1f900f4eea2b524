# SPDX-License-Identifier: Apache-2.0
"""Position: where a loader stands in its data, to go on from there in another process."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from spmdx._data.sampling import Workers, draws, generators, parts_of, skipped
from spmdx.errors import ShardingError, naming


class Position:
    """Epoch and batches consumed of one loader, and what its order was drawn from.

    A loader with ``state_dict`` and ``load_state_dict`` is asked for its own state after every
    batch. For others the states of generators at the start of the epoch are kept: the same order is
    drawn again, and its first batches are left out.

    Args:
        loader: any iterable.
        parts: tells which part of the batches this process loads, of how many: a list, which is
            empty where it loads all of them.

    Example:
        >>> position = Position(range(5))
        >>> items = position.begin()
        >>> next(items), position.advance(None), position.state_dict()["consumed"]
        (0, None, 1)
    """

    def __init__(self, loader: Any, parts: Callable[[], list[list[int]]] = list):
        self.epoch = 0
        self._parts = parts
        self._loader = loader
        self._consumed = 0
        self._open = False  # an epoch began and did not end
        self._resumed = False
        self._told: int | None = None  # the epoch that samplers were last told
        self._global: torch.Tensor | None = None  # states at the start of the epoch
        self._own: list[torch.Tensor] = []
        self._snapshot: Any = None
        self._workers = Workers()
        self.keeps_itself = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")

    def begin(self) -> Iterator[Any]:
        """The batches of the epoch that comes next, or the rest of the one that was loaded."""
        resumed, self._resumed = self._resumed, False
        if not resumed:
            self.epoch += self._open
            self._consumed, self._snapshot = 0, None
        self._tell_epoch(resumed)
        amid, self._open = resumed and self._open, True
        if self.keeps_itself:
            return iter(self._loader)
        if resumed:
            for generator, state in zip(generators(self._loader), self._own, strict=True):
                generator.set_state(state)
        self._workers.begin(resumed)
        if amid:
            return self._rest()
        self._global, self._own = torch.get_rng_state(), self._states()
        return self._workers.iterate(self._loader)

    def advance(self, *snapshot: Any) -> None:
        """Note that the loop got another batch, and the loader's state after it, if any."""
        self._consumed += 1
        if snapshot:
            (self._snapshot,) = snapshot

    def finish(self) -> None:
        """The epoch ended."""
        self.epoch, self._consumed, self._open = self.epoch + 1, 0, False
        self._snapshot = self._global = None

    def snapshot(self) -> Callable[[], Any]:
        """The function that gives the loader's own state, where it has one."""
        return self._loader.state_dict if self.keeps_itself else lambda: None

    def state_dict(self) -> dict[str, Any]:
        """The position. Prefetched batches count as not yet read."""
        state: dict[str, Any] = {"epoch": self.epoch, "consumed": self._consumed}
        state["parts"] = self._parts()
        if self.keeps_itself:
            read = self._snapshot is not None
            state["loader"] = self._snapshot if read else self._loader.state_dict()
        else:
            # Between epochs the global generator is the program's affair.
            state["global_generator"] = self._global
            state["generators"] = self._own if self._global is not None else self._states()
            state["workers_seeded"] = self._workers.seeded_at(self._open)
        state["open"] = self._open
        return copy.deepcopy(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there at the next :meth:`begin`."""
        if ("loader" in state) != self.keeps_itself or (
            not self.keeps_itself and len(state["generators"]) != len(self._states())
        ):
            with naming("load_state_dict"):
                raise ShardingError(
                    "the state is that of another kind of loader. Expected one that was built "
                    "alike. Build the loader as in the run that was saved."
                )
        with naming("load_state_dict"):
            self._require_same_parts(state.get("parts", []))
        state = copy.deepcopy(state)
        self.epoch, self._consumed = state["epoch"], state["consumed"]
        self._open, self._resumed = state["open"], True
        if self.keeps_itself:
            self._snapshot = state["loader"] if self._open else None
            self._loader.load_state_dict(state["loader"])
        else:
            self._global, self._own = state["global_generator"], state["generators"]
            self._workers = Workers(state["workers_seeded"])

    def _require_same_parts(self, saved: list[list[int]]) -> None:
        """Check that batches are cut as they were: else other batches than those read are left out.

        States of generators, and the loader's own state, belong to one part.
        """
        mine, own = self._parts(), self.keeps_itself or draws(self._loader)
        counts = [count for _, count in saved], [count for _, count in mine]
        if counts[0] != counts[1] or (own and saved != mine):
            said = [
                " and ".join(f"part {part} of {count}" for part, count in parts) or "all"
                for parts in (saved, mine)
            ]
            raise ShardingError(
                f"the position is that of a loader of {said[0]} of each batch, and this one loads "
                f"{said[1]}. Expected the same, or batches would be read twice or left out. Go on "
                "with as many parts, each process with its own state, or begin an epoch."
            )

    def _rest(self) -> Iterator[Any]:
        """The epoch's order, drawn again; the global generator is left as it was."""
        assert self._global is not None  # kept when the epoch began
        with _global_generator_at(self._global):
            # A sampler draws when it is first asked, so the first batch is drawn in here too.
            batches = skipped(self._loader, self._consumed, self._workers.iterate)
            ahead = list(itertools.islice(batches, 1))
        yield from ahead
        ahead.clear()
        yield from batches

    def _states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in generators(self._loader)]

    def _tell_epoch(self, resumed: bool) -> None:
        """Samplers shuffle by epoch. A sampler that the program has set says which epoch it is."""
        listeners = [p for p in parts_of(self._loader) if callable(getattr(p, "set_epoch", None))]
        known = next(
            (p.epoch for p in listeners if isinstance(getattr(p, "epoch", None), int)), None
        )
        if not resumed and known not in (None, self._told):
            self.epoch = known
        for listener in listeners:
            listener.set_epoch(self.epoch)
        self._told = self.epoch


@contextlib.contextmanager
def _global_generator_at(state: torch.Tensor) -> Iterator[None]:
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(before)
