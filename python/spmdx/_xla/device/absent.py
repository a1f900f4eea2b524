# SPDX-License-Identifier: Apache-2.0
"""Names of torch_xla that mean nothing here: asking for one says so, and what to do instead."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn


def refuse(name: str, advice: str) -> NoReturn:
    """Raise NotImplementedError for a use of torch_xla's API that means nothing here."""
    raise NotImplementedError(f"{name} means nothing on spmdx. {advice}")


def absent(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: for a name that is not there, the advice for it.

    Args:
        module: torch_xla's name of the module.
        names: by name, what to do instead.

    Returns:
        A function that gives, for each of these, a function that raises NotImplementedError; and
        raises AttributeError for all others.
    """

    def asked(name: str) -> Any:
        if name not in names:
            raise AttributeError(
                f"{module}.{name} is not in spmdx.torch_xla. docs/torch_xla.md lists what is."
            )
        return _refusing(f"{module}.{name}", names[name])

    return asked


def _refusing(name: str, advice: str) -> Callable[..., NoReturn]:
    def refusing(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, advice)

    refusing.__name__ = name.rpartition(".")[2]
    return refusing
