# SPDX-License-Identifier: Apache-2.0
"""The environment variables spmdx reads, and a warning for one that it does not know."""

import difflib
import os
import warnings
from collections.abc import Mapping

from spmdx._base.logs import LEVELS

KNOWN = {
    "SPMDX_NUM_DEVICES": "how many virtual devices a process plays (an int, default 1)",
    "SPMDX_DEVICE_TYPE": "the hardware below the devices: 'cpu' (default) or 'cuda'",
    "SPMDX_COMM": "what carries messages between processes: 'gloo' (default on cpu), 'nccl' "
    "(default on cuda), or 'hccl', if a package has registered that for host memory",
    "SPMDX_COLLECTIVES": "how processes move data: 'direct', messages between two each, 'native', "
    "the collectives that gloo, nccl or hccl has itself, or 'auto' (default), what takes less time",
    "SPMDX_DETERMINISTIC": "'1': sums over processes have the same bits for any number of them, "
    "also where collectives are native",
    "SPMDX_TIMEOUT": "how long a process waits for the others (seconds, default 600)",
    "SPMDX_DUMP": "a folder that gets the graph after every pass of every plan, in folders of the "
    "processes where there are several",
    "SPMDX_TOPOLOGY": "what joins the devices: the name of a topology, or a file",
    "SPMDX_CHECK": "'poison': memory that no shard owns holds NaN, so that a read of it shows; "
    "'replicas': what processes read is compared; 'memory': what devices hold is counted, for "
    "spmdx.explain().memory.measured; or several, with commas between",
    "SPMDX_COMPILER": "who compiles what devices run: 'inductor', or a name of "
    "spmdx.compilers.installed()",
    "SPMDX_CACHE": "a folder for kernels that compilers made (default: one of the user's caches), "
    "and for what was decided for programs, so that later processes need no search",
    "SPMDX_COMPILE_TIMEOUT": "how long a compiler may take for a segment (seconds, default 600)",
    "SPMDX_LOG": "'info' or 'debug': what the loggers 'spmdx.*' tell is printed to stderr",
    "SPMDX_PROGRESS": "'off': no progress bars, also on a terminal",
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


def dump_folder(environment: Mapping[str, str] | None = None) -> str:
    """The folder for this process's dumps; empty where none are asked for.

    Args:
        environment: names and values; None means ``os.environ``.

    Example:
        >>> dump_folder({"SPMDX_DUMP": "dumps", "RANK": "1", "WORLD_SIZE": "2"})
        'dumps/process-1'
    """
    environment = os.environ if environment is None else environment
    folder = environment.get("SPMDX_DUMP", "")
    if not folder or int(environment.get("WORLD_SIZE", "1")) == 1:
        return folder
    return os.path.join(folder, f"process-{environment.get('RANK', '0')}")


CHECKS = ("poison", "memory", "replicas")


def wanted_checks(environment: Mapping[str, str] | None = None) -> dict[str, bool]:
    """Which of ``CHECKS`` the variable ``SPMDX_CHECK`` asks for.

    Args:
        environment: names and values; None means ``os.environ``.

    Raises:
        ValueError: it asks for something else.

    Example:
        >>> wanted_checks({"SPMDX_CHECK": "poison"})
        {'poison': True, 'memory': False, 'replicas': False}
    """
    text = (os.environ if environment is None else environment).get("SPMDX_CHECK", "")
    wanted = [word.strip() for word in text.split(",") if word.strip()]
    for word in wanted:
        if word not in CHECKS:
            raise ValueError(
                f"SPMDX_CHECK is {text!r}, and {word!r} is no check. Expected "
                f"{', '.join(map(repr, CHECKS))}, several with commas between, or nothing. "
                f"Unset SPMDX_CHECK, or write SPMDX_CHECK={CHECKS[0]}."
            )
    return {check: check in wanted for check in CHECKS}


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


def wanted_log(environment: Mapping[str, str] | None = None) -> str:
    """The level that ``SPMDX_LOG`` asks for; empty where it asks for none.

    Args:
        environment: names and values; None means ``os.environ``.

    Raises:
        ValueError: it asks for something else.

    Example:
        >>> wanted_log({"SPMDX_LOG": "info"}), wanted_log({})
        ('info', '')
    """
    wanted = (os.environ if environment is None else environment).get("SPMDX_LOG", "").lower()
    if wanted not in ("", *LEVELS):
        raise ValueError(
            f"SPMDX_LOG is {wanted!r}, which is no level of logging. Expected "
            f"{' or '.join(map(repr, LEVELS))}, or nothing. Unset SPMDX_LOG, or write "
            f"SPMDX_LOG={LEVELS[0]}."
        )
    return wanted


def check_progress(environment: Mapping[str, str] | None = None) -> None:
    """Raise ValueError unless ``SPMDX_PROGRESS`` is ``off`` or nothing.

    Args:
        environment: names and values; None means ``os.environ``.

    Example:
        >>> check_progress({"SPMDX_PROGRESS": "off"})
    """
    _asks_for("off", "SPMDX_PROGRESS", "way to show progress", environment)


def _asks_for(word: str, name: str, what: str, environment: Mapping[str, str] | None) -> bool:
    wanted = (os.environ if environment is None else environment).get(name, "")
    if wanted not in ("", word):
        raise ValueError(
            f"{name} is {wanted!r}, which is no {what}. Expected {word!r}, or nothing. "
            f"Unset {name}, or write {name}={word}."
        )
    return wanted == word
