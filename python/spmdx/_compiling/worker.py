# SPDX-License-Identifier: Apache-2.0
"""The process in which a compiler works: lines of JSON come in and go out.

It is nice to the program, and ends with it.
"""

import contextlib
import json
import os
import pathlib
import pickle
import sys
from typing import IO, Any

import torch

from spmdx._segments.compiler import NotTaken
from spmdx._segments.one_line import of_error
from spmdx._segments.segment import Segment

_NICE = 19


def main() -> None:
    """Answers requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what compilers print is no answer
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    _answer(answers, lambda: None)  # it is there: how long that takes is not the compiler's matter
    first = json.loads(sys.stdin.readline())
    torch.set_num_threads(first["threads"])
    compiler: Any = None

    def begin() -> dict[str, Any]:
        nonlocal compiler
        compiler = _unpickled(bytes.fromhex(first["compiler"]))
        return {"ops": sorted(set(compiler.ops(overloads(first["known"]))))}

    _answer(answers, begin)
    for line in sys.stdin:
        request = json.loads(line)
        segment = Segment.of_row(request["text"], request["row"])
        _answer(
            answers, lambda s=segment, r=request: compiler.compile(s, pathlib.Path(r["folder"]))
        )


def _unpickled(pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)
    except Exception as error:
        raise RuntimeError(
            f"its class is not found in a process of its own: {of_error(error)}. Put it in a module"
        ) from error


def overloads(known: list[str]) -> list[str]:
    """Of ops that are known by name, all overloads that write to none of their arguments."""
    found = set()
    for name in known:
        namespace, packet, *overload = name.split(".")
        op = getattr(getattr(torch.ops, namespace, None), packet, None)
        if op is None:
            continue
        for each in overload or op.overloads():
            if not getattr(op, each)._schema.is_mutable:
                found.add(f"{namespace}.{packet}" + (f".{each}" if each != "default" else ""))
    return sorted(found)


def _answer(answers: IO[str], work: Any) -> None:
    try:
        answer = work() or {}
    except NotTaken as error:
        answer = {"left": sorted(error.reasons.items())}
    except BaseException as error:  # whatever it is, the program goes on
        answer = {"error": of_error(error)}
        if isinstance(error, KeyboardInterrupt):
            raise
    print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
