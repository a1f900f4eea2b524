# SPDX-License-Identifier: Apache-2.0
"""Docstrings as the reference shows them: roles such as :func:`spmdx.explain` become links."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|exc):`~?([\w.]+)`")
EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)


class Roles(griffe.Extension):
    """Rewrites the docstring of every object that is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe when an object is complete."""
        if obj.docstring is not None:
            text = EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
            obj.docstring.value = ROLE.sub(lambda role: _link(role[1], obj), text)


def _link(name: str, obj: griffe.Object) -> str:
    """A link to a public name; short ones are of the class or of the module they stand in."""
    if name.startswith("spmdx."):
        return f"[`{name}`][{name}]"
    owner = obj if obj.is_class else obj.parent
    if owner is not None and owner.is_class and name in owner.members:
        return _within(owner, f"{owner.name}.{name}", name)
    return _within(obj, name, name) if name in obj.module.members else f"`{name}`"


def _within(obj: griffe.Object, path: str, name: str) -> str:
    """A link where the module is public; names of rooms are text, for they may have many homes."""
    module = obj.module.path
    private = any(part.startswith("_") for part in module.split("."))
    return f"`{name}`" if private else f"[`{name}`][{module}.{path}]"
