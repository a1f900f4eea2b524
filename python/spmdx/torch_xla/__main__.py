# SPDX-License-Identifier: Apache-2.0
"""``python -m spmdx.torch_xla [--shadow] program.py …``: runs a program of PyTorch/XLA as it is."""

import runpy
import sys
from pathlib import Path

from spmdx import torch_xla

USAGE = "usage: python -m spmdx.torch_xla [--shadow] (program.py | -m module) [arguments]"


def main(arguments: list[str]) -> None:
    """Run a program with what follows it as its arguments.

    Args:
        arguments: those of the command line.
    """
    shadow = arguments[:1] == ["--shadow"]
    rest = arguments[1:] if shadow else arguments
    if not rest or rest[0] in ("-h", "--help") or rest == ["-m"]:
        sys.exit(USAGE)
    torch_xla.install(shadow=shadow)
    if rest[0] == "-m":
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = rest
    sys.path[0] = str(Path(rest[0]).resolve().parent)
    runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
