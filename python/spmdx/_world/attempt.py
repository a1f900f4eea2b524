# SPDX-License-Identifier: Apache-2.0
"""Attempt: one start of one program, to which processes that meet in a store belong.

A store may outlive a program: that of a launcher serves every attempt, and several jobs. So the
processes first agree on a name of this attempt. Process 0 makes one up; the others answer under it,
each with a word of its own; process 0 repeats the words of the processes that it starts with. What
an earlier attempt left behind repeats other words.
"""

import json
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from spmdx._world.store import text_at, values_at
from spmdx.errors import CommError

LINGER = 1.0  # seconds in which the others can still ask who is missing
_PAUSE = 0.02  # seconds between two questions to the store


class Attempt:
    """The attempt that this process waits for.

    Args:
        store: of a launcher or of the program; other programs may use it, too.
        index: of this process.
        count: of processes.
        mine: what this process tells the others about itself, for JSON.
    """

    def __init__(self, store: Any, index: int, count: int, mine: dict[str, Any]):
        run = os.environ.get("TORCHELASTIC_RUN_ID", "")
        self._number = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self._job = dist.PrefixStore(f"spmdx/{run}", store)
        self._store = dist.PrefixStore(str(self._number), self._job)
        self._index = index
        self._count = count
        self._word = uuid.uuid4().hex
        self._mine = json.dumps({**mine, "word": self._word})
        self._name = ""  # the name under which this process has answered
        self._stale: set[str] = set()  # attempts that began or failed before this process came
        self._late = False  # whether one of these attempts began

    def enter(self, waits: Callable[[], bool], waited: str) -> tuple[Any, list[dict[str, Any]]]:
        """The part of the store that only this attempt uses, and what all processes have told.

        Args:
            waits: whether to go on waiting for processes that have not come; may raise.
            waited: what messages call the time.

        Raises:
            CommError: some did not come, another process has this one's index, or this one is
                left over from an earlier attempt.
        """
        if self._index == 0:
            self._answer(uuid.uuid4().hex)
            self._store.set("name", self._name)
        while not self._has_begun():
            try:
                if not waits():
                    raise self._alone(waited)
            except Exception as error:
                self._give_up(str(error))
                raise
            time.sleep(_PAUSE)
        return dist.PrefixStore(self._name, self._store), values_at(self._store, self._keys())

    def _has_begun(self) -> bool:
        """Whether process 0 has begun with all processes, including this one."""
        self._require_newest()
        name = text_at(self._store, "name")
        if self._index == 0 and name != self._name:
            raise self._refusal("another process of index 0 came after")
        if not name or name in self._stale:
            return False
        if name != self._name:
            began = self._store.check([f"{name}/began"])
            if began or self._store.check([f"{name}/failed"]):
                self._stale.add(name)
                self._late |= began
                return False
            self._answer(name)
        if said := text_at(self._store, f"{name}/failed"):
            raise CommError(said)
        if self._index == 0 and (all_of_them := values_at(self._store, self._keys())):
            self._store.set(f"{name}/began", json.dumps([who["word"] for who in all_of_them]))
        words = json.loads(text_at(self._store, f"{name}/began") or "[]")
        if words and self._word not in words:
            raise self._refusal(self._replaced())
        return bool(words)

    def _answer(self, name: str) -> None:
        self._name = name
        self._store.set(self._keys()[self._index], self._mine)

    def _keys(self) -> list[str]:
        return [f"{self._name}/who/{process}" for process in range(self._count)]

    def _replaced(self) -> str:
        return (
            f"{self._count} processes have begun without it, another of index {self._index} "
            "among them"
        )

    def _alone(self, waited: str) -> CommError:
        """Why no attempt has begun with this process."""
        if self._late and not self._name:  # and no new attempt has begun
            return self._refusal(f"it waited {waited}; {self._replaced()}")
        return CommError(self._missing(waited))

    def _missing(self, waited: str) -> str:
        missing = [p for p, key in enumerate(self._keys()) if not self._store.check([key])]
        if not self._name:
            missing = [0]  # without process 0 nobody can tell which processes have come
        return (
            f"after {waited} {len(missing)} of {self._count} processes are missing: "
            f"{', '.join(map(str, missing))}. Expected all of them to import spmdx and use it. "
            "See whether they died or are stopped, or raise SPMDX_TIMEOUT."
        )

    def _give_up(self, said: str) -> None:
        """Tell the others, and give them a moment to hear it."""
        if self._name and not self._store.check([f"{self._name}/failed"]):
            self._store.set(f"{self._name}/failed", said)
            time.sleep(LINGER)

    def _require_newest(self) -> None:
        """Only the newest attempt of a job goes on."""
        newest = int(text_at(self._job, "newest") or -1)
        if newest > self._number:
            raise self._refusal(
                f"attempt {newest} has begun, and it is of attempt {self._number} "
                "(TORCHELASTIC_RESTART_COUNT)"
            )
        if newest < self._number:
            self._job.set("newest", str(self._number))

    def _refusal(self, why: str) -> CommError:
        return CommError(
            f"process {self._index} (pid {os.getpid()}) is not among those that run the program: "
            f"{why}. Expected each index once, in processes that were started together. End what "
            "is left over from another start of the program."
        )
