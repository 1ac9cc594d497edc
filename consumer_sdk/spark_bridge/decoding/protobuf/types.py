"""The Spark type of each field of a Protobuf message, and the conversion of its values.

Types, options and defaults are those of Spark's ``from_protobuf``. A message is walked once, into columns that have both
the type and the conversion, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet
from pyspark.sql import types as t

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import unknown_option
from consumer_sdk.spark_bridge.decoding.in_workers import RejectedError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["Column", "Convert", "Options", "columns_of", "read_options", "row_reader", "struct_of"]

_TRUTH = {"true": True, "false": False}
_DEEPEST_RECURSION = 10
_INT_BITS, _LONG_BITS = 32, 64


Convert: TypeAlias = Callable[[Any], Any]
"""A value of Protobuf's to one that Arrow takes."""


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a message.

    Attributes:
        name: of the column.
        kind: its type.
        convert: a field's value to the column's.
        default: what is there when the message has no such field.
    """

    name: str
    kind: DataType
    convert: Convert
    default: Any = None


@dataclass(frozen=True, slots=True)
class Options:
    """Those of ``from_protobuf`` that are about types; see `read_options`."""

    enums_as_ints: bool = False
    emit_defaults: bool = False
    upcast_unsigned: bool = False
    unwrap_wrappers: bool = False
    recursion: int = 0


@dataclass(frozen=True, slots=True)
class _Type:
    kind: t.DataType
    convert: Convert


_NAMES = {
    "enums.as.ints": "enums_as_ints",
    "emit.default.values": "emit_defaults",
    "upcast.unsigned.ints": "upcast_unsigned",
    "unwrap.primitive.wrapper.types": "unwrap_wrappers",
}


def read_options(texts: Mapping[str, str]) -> Options:
    """Spark's options: four truths, and ``recursive.fields.max.depth``, a number from 1 to 10.

    Raises:
        ConfigurationError: an option is unknown, or its value none.
    """
    found: dict[str, Any] = {}
    for name, text in texts.items():
        if name == "recursive.fields.max.depth":
            found["recursion"] = _depth(name, text)
        elif name not in _NAMES:
            raise unknown_option(name, [*_NAMES, "recursive.fields.max.depth"])
        elif text.lower() not in _TRUTH:
            raise ConfigurationError(f"{name}={text!r}: give one of true, false")
        else:
            found[_NAMES[name]] = _TRUTH[text.lower()]
    return Options(**found)


def _depth(name: str, text: str) -> int:
    # Spark's default, -1, is that a message must not contain itself.
    if text not in {"-1", *map(str, range(1, _DEEPEST_RECURSION + 1))}:
        raise ConfigurationError(f"{name}={text!r}: give a number from 1 to {_DEEPEST_RECURSION}")
    return max(int(text), 0)


def struct_of(columns: Mapping[int, Column]) -> t.StructType:
    """The type of a message's columns, all of which may be null."""
    return t.StructType([t.StructField(each.name, each.kind) for each in columns.values()])


def columns_of(message: Descriptor, options: Options) -> dict[int, Column]:
    """The columns by the numbers of their fields.

    A message without fields has none, and a field of such a message has no column.

    Raises:
        ConfigurationError: the message contains itself, and no option says how deep; names the field.
    """
    return _columns(message, options, {message.full_name: 1})


def _columns(message: Descriptor, options: Options, depths: Mapping[str, int]) -> dict[int, Column]:
    found = {field.number: _column(field, options, depths) for field in message.fields}
    return {number: column for number, column in found.items() if column is not None}


def _column(field: FieldDescriptor, options: Options, depths: Mapping[str, int]) -> Column | None:
    if _is_map(field):
        return _map_column(field, options, depths)
    kind = _type_of(field, options, depths)
    if kind is None:
        return None
    if field.is_repeated:
        convert = kind.convert
        return Column(
            field.name, t.ArrayType(kind.kind), lambda each: [convert(one) for one in each], []
        )
    return Column(field.name, kind.kind, kind.convert, _default(field, kind, options))


def _default(field: FieldDescriptor, kind: _Type, options: Options) -> Any:
    """Proto2's own default; the type's where the wire cannot tell it from nothing, if asked for."""
    is_told = field.has_default_value or (options.emit_defaults and not field.has_presence)
    return kind.convert(field.default_value) if is_told else None


def _map_column(
    field: FieldDescriptor, options: Options, depths: Mapping[str, int]
) -> Column | None:
    fields = field.message_type.fields_by_name
    key = _type_of(fields["key"], options, depths)
    value = _type_of(fields["value"], options, depths)
    if key is None or value is None:
        return None
    of_key, of_value, full = key.convert, value.convert, field.full_name

    def convert(entries: Any) -> list[tuple[Any, Any]]:
        try:
            return [(of_key(name), of_value(each)) for name, each in entries.items()]
        except UnicodeDecodeError as error:  # the parser takes proto2's text, and its map does not
            raise RejectedError(f"the field {full} has a key that is no UTF-8") from error

    return Column(field.name, t.MapType(key.kind, value.kind), convert, [])


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return bool(field.is_repeated and kind is not None and kind.GetOptions().map_entry)


# -- types ----------------------------------------------------------------------------------


def _type_of(field: FieldDescriptor, options: Options, depths: Mapping[str, int]) -> _Type | None:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message(field, options, depths)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return _Type(t.IntegerType(), _same) if options.enums_as_ints else _enum(field)
    return _scalar(field, options)


def _scalar(field: FieldDescriptor, options: Options) -> _Type:
    # Spark widens these two, and neither fixed32 nor fixed64.
    if options.upcast_unsigned and field.type == FieldDescriptor.TYPE_UINT32:
        return _Type(t.LongType(), _same)
    if options.upcast_unsigned and field.type == FieldDescriptor.TYPE_UINT64:
        return _Type(t.DecimalType(20, 0), Decimal)
    return {
        FieldDescriptor.CPPTYPE_INT32: _Type(t.IntegerType(), _same),
        FieldDescriptor.CPPTYPE_INT64: _Type(t.LongType(), _same),
        FieldDescriptor.CPPTYPE_UINT32: _Type(
            t.IntegerType(), lambda value: _signed(value, _INT_BITS)
        ),
        FieldDescriptor.CPPTYPE_UINT64: _Type(
            t.LongType(), lambda value: _signed(value, _LONG_BITS)
        ),
        FieldDescriptor.CPPTYPE_FLOAT: _Type(t.FloatType(), _same),
        FieldDescriptor.CPPTYPE_DOUBLE: _Type(t.DoubleType(), _same),
        FieldDescriptor.CPPTYPE_BOOL: _Type(t.BooleanType(), _same),
        FieldDescriptor.CPPTYPE_STRING: _text_or_bytes(field),
    }[field.cpp_type]


def _same(value: Any) -> Any:
    return value


def _signed(value: int, bits: int) -> int:
    """As Java sees an unsigned number."""
    return value - (1 << bits) if value >> bits - 1 else value


def _text_or_bytes(field: FieldDescriptor) -> _Type:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _Type(t.BinaryType(), _same)
    name = field.full_name

    def convert(value: Any) -> str:
        if isinstance(value, bytes):  # what the parser makes of proto2's text that is no UTF-8
            raise RejectedError(f"the field {name} is no UTF-8")
        return str(value)

    return _Type(t.StringType(), convert)


def _enum(field: FieldDescriptor) -> _Type:
    names: dict[int, str] = {each.number: each.name for each in reversed(field.enum_type.values)}
    full = field.full_name

    def convert(value: int) -> str:
        if value not in names:
            raise RejectedError(f"the field {full} has the unknown enum value {value}")
        return names[value]

    return _Type(t.StringType(), convert)


# -- messages -------------------------------------------------------------------------------


def _message(field: FieldDescriptor, options: Options, depths: Mapping[str, int]) -> _Type | None:
    kind = field.message_type
    if [each.name for each in kind.fields] == ["seconds", "nanos"] and kind.name in _TIMES:
        return _Type(_TIMES[kind.name], lambda value: _micros(value.seconds, value.nanos))
    if options.unwrap_wrappers and kind.full_name in _WRAPPERS:
        return _unwrapped(kind, options)
    depth = depths.get(kind.full_name, 0)
    if depth and not options.recursion:
        raise ConfigurationError(
            f"the message {kind.full_name} contains itself at {field.full_name}: columns need an end; "
            'give options={"recursive.fields.max.depth": "2"} or so'
        )
    if depth and depth >= options.recursion:
        return None
    columns = _columns(kind, options, {**depths, kind.full_name: depth + 1})
    return _Type(struct_of(columns), row_reader(kind, columns)) if columns else None


_TIMES = {"Timestamp": t.TimestampType(), "Duration": t.DayTimeIntervalType()}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "String", "Bytes", "Float", "Double")
}


def _unwrapped(kind: Descriptor, options: Options) -> _Type:
    inner = _scalar(kind.fields_by_name["value"], options)
    convert = inner.convert
    return _Type(inner.kind, lambda message: convert(message.value))


def _micros(seconds: int, nanos: int) -> int:
    """Cut towards zero, as Java divides: a duration's nanoseconds may be below zero."""
    return seconds * 1_000_000 + (nanos // 1000 if nanos >= 0 else -(-nanos // 1000))


# -- a message as a row --------------------------------------------------------------------
#
# Strict: a field that the parser put aside is no absent one.


def row_reader(message: Descriptor, columns: Mapping[int, Column]) -> Convert:
    """The function from a message to a dictionary.

    Args:
        message: the type of the messages.
        columns: by the numbers of their fields; other fields are left out.
    """
    fields = {field.number: field for field in message.fields}
    empty = {each.name: each.default for each in columns.values()}
    known = {number: (each.name, each.convert) for number, each in columns.items()}

    def read(value: Any) -> dict[str, Any]:
        for unknown in UnknownFieldSet(value):
            if unknown.field_number in fields:
                raise _put_aside(fields[unknown.field_number])
        row = empty.copy()
        for field, inner in value.ListFields():
            if field.number in known:
                name, convert = known[field.number]
                row[name] = convert(inner)
        return row

    return read


def _put_aside(field: FieldDescriptor) -> RejectedError:
    """The parser knows no such value of a closed enum, or no such type of the field's."""
    kind = field.enum_type
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"].enum_type
    if kind is not None:
        return RejectedError(f"the field {field.full_name} has an unknown enum value")
    return RejectedError(f"the field {field.full_name} was written with another type")
