# SPDX-License-Identifier: Apache-2.0
"""What a wheel asks for: the extension in it fits the torch it was built with, and no other."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> list[str]:
    """The dependencies of the package, for scikit-build-core.

    Args:
        field: "dependencies".
        settings: ``others``, which hold for every build.
    """
    if field != "dependencies":
        raise RuntimeError(f"{field} is asked for. Expected 'dependencies'. Mend pyproject.toml.")
    version = importlib.metadata.version("torch").split("+")[0]
    return [f"torch=={version}", *settings["others"]]
