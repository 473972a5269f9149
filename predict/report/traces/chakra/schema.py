"""The messages of a Chakra execution trace, by their published schema (mlcommons/chakra, schema/protobuf/et_def.proto, version 0.0.4).

Declared here are the fields that a trace of ours has, under their published numbers: readers with the whole schema read them.
A file is messages one after the other, each behind its length as a varint: GlobalMetadata first, then Nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

VERSION = "0.0.4"
PACKAGE = "ChakraProtoMsg"
NODE_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}
COLLECTIVES = {"all_reduce": 0, "all_gather": 2, "all_to_all": 6, "token_exchange": 6, "reduce_scatter": 7}
"""Name of a call of ours → CollectiveCommType."""
DOUBLE, INT64, UINT64, INT32, BOOL, STRING, MESSAGE = 1, 3, 4, 5, 8, 9, 11
"""Types of google.protobuf.FieldDescriptorProto."""
VALUES = {
    "double_val": (3, DOUBLE),
    "int32_val": (7, INT32),
    "int64_val": (9, INT64),
    "uint64_val": (13, UINT64),
    "bool_val": (27, BOOL),
    "string_val": (29, STRING),
}
FIELDS: dict[str, tuple[tuple[str, int, int, bool], ...]] = {
    "GlobalMetadata": (("version", 1, STRING, False), ("attr", 2, MESSAGE, True)),
    "Node": (
        ("id", 1, UINT64, False),
        ("name", 2, STRING, False),
        ("type", 3, INT32, False),
        ("data_deps", 5, UINT64, True),
        ("start_time_micros", 6, UINT64, False),
        ("duration_micros", 7, UINT64, False),
        ("attr", 10, MESSAGE, True),
    ),
}
"""Message → (field, number, type, whether repeated). An enum is an int32 on the wire."""


@cache
def messages() -> dict[str, Any]:
    """Name of a message → its class; needs protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="steptime_chakra.proto", package=PACKAGE, syntax="proto3")
    attribute = file.message_type.add(name="AttributeProto")
    attribute.field.add(name="name", number=1, type=STRING, label=1)
    attribute.oneof_decl.add(name="value")
    for name, (number, kind) in VALUES.items():
        attribute.field.add(name=name, number=number, type=kind, label=1, oneof_index=0)
    for message, fields in FIELDS.items():
        declared = file.message_type.add(name=message)
        for name, number, kind, repeated in fields:
            of = {"type_name": f".{PACKAGE}.AttributeProto"} if kind == MESSAGE else {}
            declared.field.add(name=name, number=number, type=kind, label=3 if repeated else 1, **of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("AttributeProto", *FIELDS)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names}


def encoded(found: Iterable[Any]) -> bytes:
    """Messages as a trace file holds them."""
    parts = []
    for message in found:
        content = message.SerializeToString(deterministic=True)
        parts += [_varint(len(content)), content]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(128 | value & 127)
        value >>= 7
    made.append(value)
    return bytes(made)
