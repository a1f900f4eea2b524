# SPDX-License-Identifier: Apache-2.0
"""The battery from the command line: ``python tests/hardware/run.py inductor --dtypes f32``."""

import argparse
import hashlib
import importlib
import importlib.metadata
import pathlib
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
KEPT = HERE.parents[1] / "build" / "hardware"
sys.path[:0] = [str(HERE), str(HERE.parent / "python" / "helpers")]

import torch  # noqa: E402
from battery import Battery  # noqa: E402
from gathered_calls import kept  # noqa: E402
from spmdx._compiling.in_force import _OWN, GROUP  # noqa: E402
from spmdx.compilers import Compiler, installed  # noqa: E402


def main() -> int:
    """1 if something is wrong; what was not compiled is told, and left to PyTorch's kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiler", help=f"one of {installed()}, or module:Class")
    parser.add_argument("--options", nargs="+", default=[], help="of it, as provider=openvino")
    parser.add_argument("--ops", nargs="+", help="as aten.mm aten.add.Tensor; all, if none is said")
    parser.add_argument("--dtypes", nargs="+", help="as f32 i64; all that the compiler takes")
    parser.add_argument("--calls", type=int, default=4, help="of an op in a dtype")
    parser.add_argument("--batch", type=int, default=32, help="calls that are one segment")
    parser.add_argument("--fresh", action="store_true", help="gather the calls anew")
    parser.add_argument("--verbose", action="store_true", help="print segments before they run")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    told = (lambda line: print(line, flush=True)) if asked.verbose else (lambda line: None)
    calls = kept(_path(), asked.fresh)
    compiler = found(asked.compiler, **dict(option.split("=", 1) for option in asked.options))
    battery = Battery(compiler, calls, asked.calls, asked.batch, told)
    report = battery.run(asked.ops, asked.dtypes)
    for row in report.rows:
        if row.state != "right":
            print(row)
    print(f"unreached: {' '.join(report.unreached) or 'none'}")
    print(report.summary())
    return int(any(row.state == "wrong" for row in report.rows))


def found(name: str, **options: str) -> Compiler:
    """The compiler of this name, made as ``spmdx.set_compiler`` makes it but for options."""
    if ":" in name:
        module, _, kind = name.partition(":")
        return getattr(importlib.import_module(module), kind)(**options)
    if name in _OWN:
        return _OWN[name](**options)
    (entry,) = importlib.metadata.entry_points(group=GROUP, name=name)
    return entry.load()(**options)


def _path() -> pathlib.Path:
    """Another one, if what gathers is another."""
    sources = [HERE / f"{name}.py" for name in ("cases", "gathered_calls", "calls_by_hand")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    return KEPT / f"calls-{torch.__version__}-{digest}.pt"


if __name__ == "__main__":
    sys.exit(main())
