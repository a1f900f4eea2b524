# SPDX-License-Identifier: Apache-2.0
"""Facts of PyTorch on the CPU, told as JSON by a child process that imports spmdx, or does not."""

import importlib
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

FACTS: dict[str, Callable[[], Any]] = {}


def numbers(*shape: int) -> torch.Tensor:
    """Some that are no accident of memory."""
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape) / 8


def model() -> nn.Module:
    """A small one that draws random numbers only where it is made."""
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 2))


def fact(about: Callable[[], Any]) -> Callable[[], Any]:
    """Registers a function without arguments; the text of what it returns is the fact."""
    assert about.__name__ not in FACTS, about.__name__
    FACTS[about.__name__] = about
    return about


def lines(names: Any) -> str:
    """A text of names, one a line, so that what is added can be seen."""
    return "\n".join(sorted(names))


def error(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What a call says: its result, or the first line of its error."""
    try:
        return repr(function(*args, **kwargs))
    except Exception as caught:
        return f"{type(caught).__name__}: {(str(caught).splitlines() or [''])[0]}"


def text_of(about: Callable[[], Any]) -> str:
    """What a fact returns if that is a text, else its repr or its error."""
    try:
        value = about()
    except Exception as caught:
        return f"{type(caught).__name__}: {caught}"
    return value if isinstance(value, str) else repr(value)


def told(about: Callable[[], Any]) -> str:
    """The text of a fact and of the warnings on the way; a failure is a text, too."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        text = re.sub(r" at 0x[0-9a-f]+", "", text_of(about))
    warned_of = sorted({f"{w.category.__name__}: {str(w.message).splitlines()[0]}" for w in warned})
    return "\n".join([text, *warned_of])


def import_spmdx() -> None:
    """The import under test. A warning is an error, and what it prints is one, too."""
    with tempfile.TemporaryFile("w+") as written, warnings.catch_warnings():
        warnings.simplefilter("error")
        out, err = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = written
        try:
            import spmdx  # noqa: F401
        finally:
            sys.stdout, sys.stderr = out, err
        written.seek(0)
        assert not (text := written.read()), text


def main(groups: list[str], imports: bool) -> None:
    """Prints the facts of these groups, which are files beside this one."""
    if imports:
        import_spmdx()
    texts: dict[str, str] = {}
    for group in groups:
        importlib.import_module(f"import_facts_{group}")  # only now: some start threads
        texts |= {name: told(about) for name, about in FACTS.items() if name not in texts}
    print(json.dumps(texts))


if __name__ == "__main__":
    sys.modules["import_facts"] = sys.modules["__main__"]  # the groups import it by this name
    main(sys.argv[2:], sys.argv[1] == "with")
