# SPDX-License-Identifier: Apache-2.0
"""torch_xla.utils.utils: helpers that programs of torch_xla call."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from spmdx._xla.device.absent import absent
from spmdx._xla.device.structures import rewritten


class SampleGenerator:
    """The same batch over and over: a loader that costs nothing.

    Args:
        data: the batch.
        sample_count: how many times.
    """

    def __init__(self, data: Any, sample_count: int):
        self._data, self._count, self._given = data, sample_count, 0

    def __iter__(self) -> "SampleGenerator":
        return SampleGenerator(self._data, self._count)

    def __len__(self) -> int:
        return self._count

    def __next__(self) -> Any:
        if self._given >= self._count:
            raise StopIteration
        self._given += 1
        return self._data

    next = __next__


class FnDataGenerator:
    """A batch that a function makes, over and over.

    Args:
        func: called with ``batch_size``, the dims and ``kwargs``.
        batch_size: the first argument.
        gen_tensor: a tensor from which the output is made.
        dims: sizes of the dims.
        count: how many batches.
        **kwargs: further arguments.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        batch_size: int,
        gen_tensor: Any,
        dims: Any = None,
        count: int = 1,
        **kwargs: Any,
    ):
        self._make = lambda: func(gen_tensor(batch_size, *(dims or [])), **kwargs)
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        return (self._make() for _ in range(self._count))

    def __len__(self) -> int:
        return self._count


def getenv_as(name: str, type: Callable[[str], Any], defval: Any = None) -> Any:
    """A setting of the environment.

    Args:
        name: the variable.
        type: makes the value of its text.
        defval: what counts where it is not set.

    Returns:
        What ``type`` makes of it, or ``defval``.
    """
    text = os.environ.get(name)
    if text is None:
        return defval
    if type is bool:
        return text.strip().lower() in ("1", "true", "yes")
    return type(text)


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether a variable of the environment says yes.

    Args:
        name: the variable.
        default: what counts where it is not set.

    Returns:
        True or False.
    """
    return os.environ.get(name, default).upper() in ("ON", "1", "YES", "TRUE", "Y")


def as_list(t: Any) -> Any:
    """A tuple or a list as it is; anything else in a tuple.

    Args:
        t: anything.

    Returns:
        A tuple or a list.
    """
    return t if isinstance(t, tuple | list) else (t,)


def shape(inputs: Any) -> list[int]:
    """The shape of nested lists.

    Args:
        inputs: numbers in lists in lists.

    Returns:
        A list of sizes.
    """
    found = []
    while isinstance(inputs, list | tuple):
        found.append(len(inputs))
        inputs = inputs[0]
    return found


def for_each_instance(value: Any, select_fn: Callable[[Any], bool], fn: Callable) -> None:
    """Call ``fn`` for everything in a structure that ``select_fn`` says yes to.

    Args:
        value: the structure.
        select_fn: called with what is in it.
        fn: called with what was chosen.
    """
    rewritten(value, select_fn, lambda leaf: (fn(leaf), leaf)[1])


def for_each_instance_rewrite(value: Any, select_fn: Callable[[Any], bool], fn: Callable) -> Any:
    """A structure in which what ``select_fn`` says yes to is what ``fn`` makes of it.

    Args:
        value: the structure.
        select_fn: called with what is in it.
        fn: called with what was chosen.

    Returns:
        A structure of the same form.
    """
    return rewritten(value, select_fn, fn)


def eprint(*args: Any, **kwargs: Any) -> None:
    """Print to the standard error."""
    print(*args, file=sys.stderr, **kwargs)


__getattr__ = absent(
    "torch_xla.utils.utils",
    {"get_free_tcp_ports": "Ask the system: socket.socket().bind(('', 0))."},
)
