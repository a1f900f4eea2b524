# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled core and checks that it fits the imported torch."""

import importlib
import importlib.util
import sys
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


def check_device(name: str) -> None:
    """Raise ImportError if another package has taken PyTorch's device for packages, PrivateUse1.

    Args:
        name: what PyTorch calls that device now.

    Example:
        >>> check_device("privateuseone")
    """
    if name in ("privateuseone", "spmdx"):
        return
    whose = ", as torch_npu calls it" if name == "npu" else ""
    raise ImportError(
        "PyTorch has one device for other packages, PrivateUse1, and it is "
        f"{name!r} already{whose}. Expected it free: spmdx is such a device, too, and no process "
        "can have both. Set TORCH_DEVICE_BACKEND_AUTOLOAD=0, or PyTorch imports such packages by "
        "itself, and import none beside spmdx."
    )


def keep_out(package: str) -> None:
    """Make the import of a package an ImportError, and have it look as if it were not installed.

    Its library, which libraries import where they find it, would end the process: it registers for
    the same device of PyTorch's.

    Args:
        package: its name; nothing is done if it was imported.

    Example:
        >>> keep_out("package_that_nobody_has")
    """
    if package not in sys.modules and importlib.util.find_spec(package) is not None:
        sys.modules[package] = None  # type: ignore[assignment]


def load_core() -> ModuleType:
    """The module ``spmdx._C``. Raises ImportError with the mend where it cannot be loaded."""
    try:
        return importlib.import_module("spmdx._C")
    except ImportError as error:
        raise ImportError(
            f"the compiled part of spmdx does not load with torch {torch.__version__}: {error}. "
            f"Expected it built for this Python and this torch. {_MEND}"
        ) from error
