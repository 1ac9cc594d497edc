"""Protobuf files made without a compiler."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from consumer_sdk.spark_bridge.decoding.protobuf.files import message_type

__all__ = [
    "EVERY",
    "OPTIONAL",
    "REPEATED",
    "REQUIRED",
    "build",
    "file",
    "files",
    "map_entry",
    "message",
]

OPTIONAL = FieldDescriptorProto.LABEL_OPTIONAL
REPEATED = FieldDescriptorProto.LABEL_REPEATED
REQUIRED = FieldDescriptorProto.LABEL_REQUIRED


def message(name: str, *fields: tuple[Any, ...], nested: Any = ()) -> DescriptorProto:
    """A message; fields are ``(name, type, label)``, numbered from 1; ``.full.Name`` is a type too."""
    found = DescriptorProto(name=name, nested_type=nested)
    for number, (field, kind, *label) in enumerate(fields, 1):
        one = found.field.add(name=field, number=number, label=label[0] if label else OPTIONAL)
        if kind.startswith("."):
            is_enum = kind.endswith("State")
            one.type = one.TYPE_ENUM if is_enum else one.TYPE_MESSAGE
            one.type_name = kind
        else:
            one.type = getattr(one, f"TYPE_{kind.upper()}")
    return found


def map_entry(name: str, key: str, value: str) -> DescriptorProto:
    """What a map field is made of."""
    found = message(name, ("key", key), ("value", value))
    found.options.map_entry = True
    return found


def file(*messages: DescriptorProto, syntax: str = "proto3", **more: Any) -> FileDescriptorProto:
    """A file of the package ``shop``, with an enum ``State``."""
    states = EnumDescriptorProto(name="State")
    for number, name in enumerate(("UNKNOWN", "PAID", "SENT")):
        states.value.add(name=name, number=number)
    given = {"name": "shop.proto", "package": "shop"} | more
    return FileDescriptorProto(syntax=syntax, message_type=messages, enum_type=[states], **given)


def files(*given: FileDescriptorProto) -> bytes:
    """A serialized set."""
    return bytes(FileDescriptorSet(file=given).SerializeToString())


def build(descriptors: bytes, name: str, **values: Any) -> bytes:
    """The bytes of a message."""
    return bytes(message_type(descriptors, name).message_class()(**values).SerializeToString())


_SCALARS = [
    "int32",
    "sint32",
    "sfixed32",
    "uint32",
    "fixed32",
    "int64",
    "sint64",
    "sfixed64",
    "uint64",
    "fixed64",
    "float",
    "double",
    "bool",
    "string",
    "bytes",
]

EVERY = files(
    file(
        message(
            "Every",
            *((f"f_{kind}", kind) for kind in _SCALARS),
            ("state", ".shop.State"),
            ("at", ".google.protobuf.Timestamp"),
            ("took", ".google.protobuf.Duration"),
            ("wrapped", ".google.protobuf.UInt64Value"),
            ("any", ".google.protobuf.Any"),
            ("tags", "string", REPEATED),
            ("states", ".shop.State", REPEATED),
            ("prices", ".shop.Every.PricesEntry", REPEATED),
            ("inners", ".shop.Every.InnersEntry", REPEATED),
            ("inner", ".shop.Inner"),
            ("nothing", ".shop.Nothing"),
            nested=[
                map_entry("PricesEntry", "string", "double"),
                map_entry("InnersEntry", "int32", ".shop.Inner"),
            ],
        ),
        message("Inner", ("x", "int32"), ("list", ".shop.Inner2", REPEATED)),
        message("Inner2", ("y", "string")),
        message("Nothing"),
        dependency=[
            f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "any")
        ],
    )
)
"""``shop.Every``, with each type; Google's own files are not in the set."""
