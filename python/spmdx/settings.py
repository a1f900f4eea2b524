# SPDX-License-Identifier: Apache-2.0
"""The environment variables spmdx reads, and a warning for one that it does not know."""

import difflib
import os
import warnings
from collections.abc import Mapping

KNOWN = {
    "SPMDX_NUM_DEVICES": "how many virtual devices a process plays (an int, default 1)",
    "SPMDX_TIMEOUT": "how long a process waits for the others (seconds, default 600)",
    "SPMDX_DUMP": "a folder that gets the graph after every pass of every plan",
    "SPMDX_TOPOLOGY": "what joins the devices: the name of a topology, or a file",
    "SPMDX_CHECK": "'poison': memory that no shard owns holds NaN, so that a read of it shows",
    "SPMDX_FALLBACK": "'error': an op without a rule, for which devices gather, raises",
}
# Read by the build and the tests, not by the library.
TOOLING = ("SPMDX_TORCH", "SPMDX_SANITIZE", "SPMDX_DEV", "SPMDX_OPT")


def check_environment(environment: Mapping[str, str] | None = None) -> None:
    """Warn of every ``SPMDX_*`` variable that nothing reads, with the nearest known name.

    Args:
        environment: names and values; None means ``os.environ``.

    Example:
        >>> check_environment({"SPMDX_NUM_DEVICES": "8"})
    """
    environment = os.environ if environment is None else environment
    for name in sorted(environment):
        if not name.startswith("SPMDX_") or name in KNOWN or name in TOOLING:
            continue
        if name.startswith("SPMDX_TEST_"):
            continue
        near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.0)
        warnings.warn(
            f"the environment variable {name} is not one that spmdx reads. "
            f"Expected one of {', '.join(KNOWN)}. Did you mean {near[0]}?",
            UserWarning,
            stacklevel=2,
        )


def wants_poison(environment: Mapping[str, str] | None = None) -> bool:
    """Whether ``SPMDX_CHECK`` asks for poison mode.

    Args:
        environment: names and values; None means ``os.environ``.

    Raises:
        ValueError: it asks for something else.

    Example:
        >>> wants_poison({"SPMDX_CHECK": "poison"}), wants_poison({})
        (True, False)
    """
    return _asks_for("poison", "SPMDX_CHECK", "check", environment)


def wants_fallback_errors(environment: Mapping[str, str] | None = None) -> bool:
    """Whether ``SPMDX_FALLBACK`` makes ops without a rule errors.

    Args:
        environment: names and values; None means ``os.environ``.

    Raises:
        ValueError: it asks for something else.

    Example:
        >>> wants_fallback_errors({"SPMDX_FALLBACK": "error"}), wants_fallback_errors({})
        (True, False)
    """
    return _asks_for("error", "SPMDX_FALLBACK", "way to treat a fallback", environment)


def _asks_for(word: str, name: str, what: str, environment: Mapping[str, str] | None) -> bool:
    wanted = (os.environ if environment is None else environment).get(name, "")
    if wanted not in ("", word):
        raise ValueError(
            f"{name} is {wanted!r}, which is no {what}. Expected {word!r}, or nothing. "
            f"Unset {name}, or write {name}={word}."
        )
    return wanted == word
