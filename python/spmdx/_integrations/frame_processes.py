# SPDX-License-Identifier: Apache-2.0
"""What frames ask of processes: objects of one of them, a decision of all."""

import base64
import pickle
from typing import Any

from spmdx._world import processes


def broadcast(value: Any, source: int, what: str) -> Any:
    """What process ``source`` passes, in all of them; a value that pickle knows."""
    if processes.process_count() == 1:
        return value
    mine = processes.process_index() == source
    told = base64.b64encode(pickle.dumps(value)).decode() if mine else None
    answers = processes.exchange(told, what)
    return value if mine else pickle.loads(base64.b64decode(answers[source]))


def decide(decision: bool, everyone: bool, what: str) -> bool:
    """Whether all processes say so, or one of them does."""
    answers = processes.exchange(bool(decision), what)
    return all(answers) if everyone else any(answers)
