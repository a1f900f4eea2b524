# SPDX-License-Identifier: Apache-2.0
"""Reading from the store in which processes meet; nothing here waits for a key to appear."""

import datetime
import json
from typing import Any

FAR = datetime.timedelta(days=7)  # spmdx limits every wait itself, by SPMDX_TIMEOUT


def text_at(store: Any, key: str) -> str:
    """Empty where there is none."""
    return store.get(key).decode() if store.check([key]) else ""


def values_at(store: Any, keys: list[str]) -> list[Any]:
    """What was written as JSON under the keys; an empty list where one is missing."""
    return [json.loads(store.get(key)) for key in keys] if store.check(keys) else []


def clone_of(store: Any) -> Any:
    """A connection of its own, so that no thread waits for an answer to another one."""
    return store.clone() if hasattr(store, "clone") else store
