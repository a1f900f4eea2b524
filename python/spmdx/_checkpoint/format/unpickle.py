# SPDX-License-Identifier: Apache-2.0
"""Unpickles the metadata of torch.distributed.checkpoint, which may come from anybody."""

import pickle
from typing import Any

import torch
import torch.distributed.checkpoint.metadata as records
from torch.distributed.checkpoint.filesystem import _StorageInfo

from spmdx._checkpoint.format.schema import shown

_RECORDS = (
    records.BytesStorageMetadata,
    records.ChunkStorageMetadata,
    records.Metadata,
    records.MetadataIndex,
    records.StorageMeta,
    records.TensorProperties,
    records.TensorStorageMetadata,
    _StorageInfo,
)
_MADE_BY_CALLS = (records._MEM_FORMAT_ENCODING, torch.Size, torch.serialization._get_layout)
_LEAVES = (str, int, bool, type(None), torch.dtype, torch.layout, records._MEM_FORMAT_ENCODING)
_PATHS = {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"}
_OPCODES = (
    "PROTO FRAME STOP MARK POP GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD NONE NEWTRUE NEWFALSE "
    "BININT BININT1 BININT2 LONG1 BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_TUPLE TUPLE1 "
    "TUPLE2 TUPLE3 TUPLE EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS MEMOIZE BINPUT "
    "LONG_BINPUT BINGET LONG_BINGET"
)


def _a_path(*parts: Any) -> str:
    """Stands for a path, which is not needed: joining paths can double a text at every step."""
    return "a path"


# The one in Python, whose stack and steps typeshed keeps to itself.
_Unpickler: Any = pickle._Unpickler


class Reader(_Unpickler):
    """Knows the records of torch.distributed.checkpoint, numbers, texts and containers only.

    In Python, since the unpickler in C allocates any memory that a damaged file asks for. What this
    one makes is never larger than its input, and a tree: walking through it comes to an end.
    """

    def find_class(self, module: str, name: str) -> Any:
        for known in (*_RECORDS, *_MADE_BY_CALLS):
            if (module, name) == (known.__module__, known.__qualname__):
                return known
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module.split(".")[0] == "pathlib" and name in _PATHS:
            return _a_path
        raise pickle.UnpicklingError(f"it asks for {shown(f'{module}.{name}')}")

    def load_reduce(self) -> None:
        if self.stack[-2] not in (*_MADE_BY_CALLS, _a_path) or type(self.stack[-1]) is not tuple:
            raise pickle.UnpicklingError("it calls what makes no record")
        super().load_reduce()

    def load_newobj(self) -> None:
        if self.stack[-2] not in _RECORDS or self.stack[-1] != ():
            raise pickle.UnpicklingError("it makes something that is no record")
        super().load_newobj()

    def load_build(self) -> None:
        if type(self.stack[-2]) not in _RECORDS:  # never the attributes of a class
            raise pickle.UnpicklingError("it changes something that is no record")
        if type(self.stack[-1]) is dict and not all(map(str.isidentifier, self.stack[-1])):
            raise pickle.UnpicklingError("it gives a record an attribute without a name")
        if type(self.stack[-1]) is dict and any(key.startswith("__") for key in self.stack[-1]):
            raise pickle.UnpicklingError("it gives a record another method")
        super().load_build()

    def load_setitem(self) -> None:
        self._require_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        self._require_keys(self.stack[::2])
        super().load_setitems()

    def _require_keys(self, keys: list[Any]) -> None:
        """Other keys may take for ever to hash: a tuple with the same tuple twice, and so on."""
        for key in keys:
            plain = vars(key).get("fqn") if type(key) is records.MetadataIndex else key
            offset = vars(key).get("offset") if type(key) is records.MetadataIndex else None
            if type(plain) is not str or type(offset) not in (torch.Size, type(None)):
                raise pickle.UnpicklingError("it has a key that is no name")

    def _require_single(self) -> None:
        """What is used again must be small: repeated, it could become a tree of any size."""
        value = self.stack[-1]
        flat = isinstance(value, tuple) and all(type(part) in _LEAVES for part in value)
        if isinstance(value, list | dict) or (isinstance(value, tuple) and not flat):
            raise pickle.UnpicklingError("it uses a container twice")

    def load_binget(self) -> None:
        super().load_binget()
        self._require_single()

    def load_long_binget(self) -> None:
        super().load_long_binget()
        self._require_single()

    def load_unknown(self) -> None:
        raise pickle.UnpicklingError("it does what no metadata needs")

    dispatch = (
        dict.fromkeys(range(256), load_unknown)
        | {
            getattr(pickle, name)[0]: _Unpickler.dispatch[getattr(pickle, name)[0]]
            for name in _OPCODES.split()
        }
        | {
            pickle.REDUCE[0]: load_reduce,
            pickle.NEWOBJ[0]: load_newobj,
            pickle.BUILD[0]: load_build,
            pickle.SETITEM[0]: load_setitem,
            pickle.SETITEMS[0]: load_setitems,
            pickle.BINGET[0]: load_binget,
            pickle.LONG_BINGET[0]: load_long_binget,
        }
    )
