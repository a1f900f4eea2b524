# SPDX-License-Identifier: Apache-2.0
"""The part of Chakra's schema that traces are written in, as messages of protobuf.

Source: ``schema/protobuf/et_def.proto`` of https://github.com/mlcommons/chakra, from which the
numbers of fields and enumerators are.
"""

import functools
from collections.abc import Callable
from typing import Any, BinaryIO

VERSION = "1.0.0"
PACKAGE = "ChakraProtoMsg"
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "AttributeProto": {
        "name": (1, "string"),
        "int32_val": (7, "int32"),
        "int64_val": (9, "int64"),
        "uint64_val": (13, "uint64"),
        "bool_val": (27, "bool"),
        "string_val": (29, "string"),
    },
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "AttributeProto")},
    "Node": {
        "id": (1, "uint64"),
        "name": (2, "string"),
        "type": (3, "int32"),  # an enumerator of NodeType is written as one
        "ctrl_deps": (4, "uint64"),
        "data_deps": (5, "uint64"),
        "duration_micros": (7, "uint64"),
        "attr": (10, "AttributeProto"),
    },
}
REPEATED = {"attr", "ctrl_deps", "data_deps"}
NODE_TYPES = {"compute": 4, "send": 5, "receive": 6, "collective": 7}
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "reduce_scatter": 7}


@functools.cache
def messages() -> tuple[dict[str, Any], Callable[[Any, BinaryIO], None]]:
    """Classes of messages by name, and what writes one. Raises ImportError without protobuf."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto
    except ImportError as error:
        raise ImportError(
            "save_chakra: protobuf is not installed. Expected it for traces. Run "
            "`pip install 'protobuf>=6'`."
        ) from error
    file = descriptor_pb2.FileDescriptorProto(name="chakra", package=PACKAGE, syntax="proto3")
    for name in MESSAGES:
        _describe(name, file.message_type.add(name=name))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in MESSAGES}
    classes = {name: message_factory.GetMessageClass(found[name]) for name in found}
    return classes, proto.serialize_length_prefixed


def _describe(name: str, message: Any) -> None:
    """Gives a descriptor the fields of the message."""
    for field, (number, kind) in MESSAGES[name].items():
        added = message.field.add(name=field, number=number)
        added.label = added.LABEL_REPEATED if field in REPEATED else added.LABEL_OPTIONAL
        if kind in MESSAGES:
            added.type_name = f".{PACKAGE}.{kind}"
        else:
            added.type = getattr(added, f"TYPE_{kind.upper()}")
        if field.endswith("_val"):  # one of them is there, and is written also where it is 0
            added.oneof_index = 0
    if name == "AttributeProto":
        message.oneof_decl.add(name="value")
