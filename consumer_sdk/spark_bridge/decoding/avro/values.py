"""Avro values to Arrow, one by one, in a Spark worker. No Spark."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from fastavro.schema import SchemaParseException, UnknownType

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.schema_registry import read_schema_number
from consumer_sdk.spark_bridge.decoding.avro.schemas import WriterSchema, parse
from consumer_sdk.spark_bridge.decoding.avro.types import AvroSchema, plain_schema, read_schema
from consumer_sdk.spark_bridge.decoding.in_workers import ArrowDecoder, RejectedError, rejected

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AvroDecoder", "Schemas", "checked_schema"]

Schemas: TypeAlias = Mapping[int, AvroSchema] | Callable[[int], AvroSchema | None]
"""Writers' schemas by their number in a schema registry; one that is unknown: None or LookupError."""

_REMEMBERED = 1000


def checked_schema(schema: AvroSchema) -> Any:
    """A schema as Python values, without the logical types that Spark does not know.

    Raises:
        ConfigurationError: it is no Avro schema.
    """
    plain = plain_schema(read_schema(schema))
    try:
        parse(plain)
    except ConfigurationError:
        raise
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"this is no Avro schema: {error!r}") from error
    return plain


class AvroDecoder(ArrowDecoder):
    """Decodes Avro values.

    Args:
        schema: what `checked_schema` returned; the reader's, if there are ``schemas``.
        schemas: None when values have no head.
        kind: the Arrow type of decoded values.
    """

    def __init__(self, schema: Any, schemas: Schemas | None, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._schema = schema
        self._schemas = schemas
        self._own: WriterSchema | None = None
        self._writers: dict[int, WriterSchema | str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_own": None, "_writers": {}}

    def read(self, data: bytes) -> Any:
        if self._own is None:
            self._own = WriterSchema.of(self._schema)
        if self._schemas is None:
            return _read(data, 0, self._own, None)
        try:
            number, begin = read_schema_number(data)
        except ValueError as error:
            raise RejectedError(str(error)) from error
        writer = self._writer(number)
        if isinstance(writer, str):
            raise RejectedError(writer)
        return _read(data, begin, writer, self._own.schema)

    def _writer(self, number: int) -> WriterSchema | str:
        """The schema that a value was written with, or why there is none."""
        if number not in self._writers:
            if len(self._writers) >= _REMEMBERED:
                self._writers.clear()  # heads of garbage have any number
            self._writers[number] = self._look_up(number)
        return self._writers[number]

    def _look_up(self, number: int) -> WriterSchema | str:
        assert self._schemas is not None  # noqa: S101 - the caller has looked
        look_up = self._schemas if callable(self._schemas) else self._schemas.get
        try:
            found = look_up(number)
        except RejectedError as error:
            return str(error)
        except LookupError:
            found = None
        return (
            f"the schema {number} is unknown"
            if found is None
            else WriterSchema.of(checked_schema(found))
        )


def _read(data: bytes, begin: int, writer: WriterSchema, reader: Any) -> Any:
    source = io.BytesIO(data)
    source.seek(begin)
    try:
        value = writer.read(source, writer.schema, reader)
    except RecursionError as error:
        raise RejectedError("the value is nested too deeply") from error
    except Exception as error:
        # Bytes that mean something else fail in every way that there is.
        raise rejected("the value is no Avro of the schema", error) from error
    if rest := len(data) - source.tell():
        raise RejectedError(f"the value is no Avro of the schema: {rest} bytes are left over")
    return value
