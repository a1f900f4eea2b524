# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled core and checks that it fits the imported torch."""

import importlib
from types import ModuleType

import torch

_MEND = (
    "Rebuild spmdx for this torch: pip install --no-build-isolation --force-reinstall . "
    "in its source folder."
)


def check_torch(built: str, imported: str) -> None:
    """Raise ImportError unless spmdx was built against the torch that is imported.

    Args:
        built: torch's version at build time.
        imported: ``torch.__version__``.

    Example:
        >>> check_torch("2.13.0+cpu", "2.13.0+cpu")
    """
    if built.split("+")[0] == str(imported).split("+")[0]:
        return
    raise ImportError(
        f"spmdx was built against torch {built}, but torch {imported} is imported. "
        f"Expected the same version. {_MEND}"
    )


def load_core() -> ModuleType:
    """The module ``spmdx._C``. Raises ImportError with the mend where it cannot be loaded."""
    try:
        return importlib.import_module("spmdx._C")
    except ImportError as error:
        raise ImportError(
            f"the compiled part of spmdx does not load with torch {torch.__version__}: {error}. "
            f"Expected it built for this Python and this torch. {_MEND}"
        ) from error
