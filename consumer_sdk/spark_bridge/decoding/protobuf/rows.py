"""A Protobuf message as a row. Strict: a field that the parser put aside is no absent one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from consumer_sdk.spark_bridge.decoding.arrow_values import RejectedError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["Column", "Convert", "row_reader"]

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
