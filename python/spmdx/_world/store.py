# SPDX-License-Identifier: Apache-2.0
"""What processes that meet read in their store; nothing here waits for what is not there yet."""

import datetime
import json
from typing import Any

FAR = datetime.timedelta(days=7)  # spmdx limits every wait itself, by SPMDX_TIMEOUT


def text_at(store: Any, key: str) -> str:
    """Empty where there is none."""
    return store.get(key).decode() if store.check([key]) else ""


def values_at(store: Any, keys: list[str]) -> list[Any]:
    """What was written as JSON; none at all where one is missing."""
    return [json.loads(store.get(key)) for key in keys] if store.check(keys) else []


def clone_of(store: Any) -> Any:
    """A connection of its own, so that nobody waits for another's answer."""
    return store.clone() if hasattr(store, "clone") else store
