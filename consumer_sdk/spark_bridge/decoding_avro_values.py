"""Avro values to Arrow, one by one, in a Spark worker. No Spark."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.decoding_avro_schemas import parse
from consumer_sdk.spark_bridge.decoding_avro_types import AvroSchema, plain_schema, read_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Decoder", "Schemas", "checked_schema"]

Schemas: TypeAlias = Mapping[int, AvroSchema] | Callable[[int], AvroSchema | None]
"""Writers' schemas by their number in a schema registry; one that is unknown: None or LookupError."""

_HEAD = 5
"""Bytes before a value that a schema registry's clients wrote: a zero, and the schema's number."""

_LONGEST_REASON = 500


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


class _RejectedError(Exception):
    """This value is bad, whoever decodes it."""


class Decoder:
    """Decodes values, or says why it cannot. It may be pickled.

    Args:
        schema: what `checked_schema` returned; the reader's, if there are ``schemas``.
        schemas: None when values have no head.
        kind: the Arrow type of decoded values.
    """

    def __init__(self, schema: Any, schemas: Schemas | None, kind: pa.DataType) -> None:
        self._schema = schema
        self._schemas = schemas
        self._kind = kind
        self._parsed: dict[int | None, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parsed": {}}

    def decode(self, values: pa.Array) -> pa.Array:
        """Pairs of a value and a reason, one of which is null; both, for a value that is null.

        Raises:
            Exception: whatever a function of schemas raises, other than LookupError.
        """
        import pyarrow as pa

        found: list[Any] = []
        reasons: list[str | None] = []
        for data in values.to_pylist():
            value, reason = self._try(data)
            found.append(value)
            reasons.append(reason)
        decoded = self._column(found, reasons)
        return pa.StructArray.from_arrays(
            [decoded, pa.array(reasons, pa.string())], names=["value", "reason"]
        )

    def _try(self, data: bytes | None) -> tuple[Any, str | None]:
        if data is None:
            return None, None
        try:
            schema, begin = self._writer(data)
            return self._read(data, schema, begin), None
        except _RejectedError as error:
            return None, str(error)

    def _read(self, data: bytes, schema: Any, begin: int) -> Any:
        source = io.BytesIO(data)
        source.seek(begin)
        reader = self._own() if begin else None  # without a head, both are the same schema
        try:
            value = fastavro.schemaless_reader(source, schema, reader)
        except Exception as error:
            # Bytes that mean something else fail in every way that there is.
            text = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
            raise _RejectedError(f"the value is no Avro of the schema: {text}") from error
        if rest := len(data) - source.tell():
            raise _RejectedError(f"the value is no Avro of the schema: {rest} bytes are left over")
        return value

    # -- schemas ------------------------------------------------------------------------------

    def _writer(self, data: bytes) -> tuple[Any, int]:
        """The schema that the value was written with, and where the value begins."""
        if self._schemas is None:
            return self._own(), 0
        if len(data) < _HEAD or data[0] != 0:
            raise _RejectedError("the value does not begin with a zero and a schema's number")
        number = int.from_bytes(data[1:_HEAD], "big")
        if number not in self._parsed:
            self._parsed[number] = self._look_up(number)
        if self._parsed[number] is None:
            raise _RejectedError(f"the schema {number} is unknown")
        return self._parsed[number], _HEAD

    def _own(self) -> Any:
        if None not in self._parsed:
            self._parsed[None] = parse(self._schema)
        return self._parsed[None]

    def _look_up(self, number: int) -> Any:
        assert self._schemas is not None  # noqa: S101 - the caller has looked
        look_up = self._schemas if callable(self._schemas) else self._schemas.get
        try:
            found = look_up(number)
        except LookupError:
            return None
        return None if found is None else parse(checked_schema(found))

    # -- Arrow --------------------------------------------------------------------------------

    def _column(self, found: list[Any], reasons: list[str | None]) -> pa.Array:
        """The values as Arrow; one that does not fit a column (a date of the year 0) is rejected."""
        import pyarrow as pa

        unfit = (pa.ArrowException, OverflowError, TypeError, ValueError)
        try:
            return pa.array(found, self._kind)
        except unfit:
            for at, value in enumerate(found):
                try:
                    pa.array([value], self._kind)
                except unfit as error:
                    found[at] = None
                    reasons[at] = f"the value does not fit its column: {error}"[:_LONGEST_REASON]
        return pa.array(found, self._kind)
