"""Avro values with a schema: decoded, or rejected with a reason, and never null instead.

Spark's own decoder is a jar apart, and with it one bad value fails the query or becomes null. Here
fastavro decodes in Spark's Python workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.schema_registry import SchemaRegistry, avro_schema
from consumer_sdk.spark_bridge.decoding.avro.types import AvroSchema, spark_type
from consumer_sdk.spark_bridge.decoding.in_workers import (
    RejectedError,
    arrow_type,
    decode_in_workers,
    registry_of,
)
from consumer_sdk.spark_bridge.decoding.outcomes import check_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from consumer_sdk.spark_bridge.decoding.avro.values import Schemas

__all__ = ["from_avro_value"]


def from_avro_value(
    rows: DataFrame,
    schema: AvroSchema | None = None,
    *,
    schemas: Schemas | None = None,
    registry: SchemaRegistry | str | None = None,
    subject: str | None = None,
    value: str = "value",
    into: str = "decoded",
    reject_null: bool = False,
) -> DataFrame:
    """The rows with a column for the decoded value, and one, ``reason``, for why there is none.

    As `consumer_sdk.spark_bridge.from_json_value`: a row is decoded, a tombstone, or rejected: its
    bytes are no value of the schema, end too early or too late, or name a schema that nobody knows.

    With ``registry`` or ``schemas`` the values begin with a zero and the number of the schema that
    they were written with, and become values of the reader's schema. A registry that is away
    fails the task, and rejects nothing.

    Args:
        rows: with a column of bytes.
        schema: of a record, as JSON text or Python values: the reader's. None takes the latest of
            ``subject``, now.
        schemas: writers' schemas by their number, in place of a registry. A function is called in
            the workers, once for each number and task; what it raises, other than LookupError,
            fails the task.
        registry: a schema registry or its URL: the workers ask it for writers' schemas.
        subject: of the registry, ``"orders-value"``.
        value: the column to decode.
        into: the new column's name.
        reject_null: tombstones are rejected too.

    Raises:
        ConfigurationError: the schema is none, or has no Spark type; a column is missing or
            exists already.
        MissingExtraError: fastavro, pyspark or pyarrow is not installed, or PySpark is
            older than 4.1.
        SchemaRegistryError: the latest schema cannot be had.
    """
    try:
        from consumer_sdk.spark_bridge.decoding.avro.values import AvroDecoder, checked_schema
    except ModuleNotFoundError as error:
        raise MissingExtraError("fastavro", "avro") from error
    check_names(rows, value, into)
    known = registry_of(registry, subject, has_schema=schema is not None)
    if known and schemas is not None:
        raise ConfigurationError("registry=, schemas=: give one of them")
    found = _latest(known, subject) if known and subject else schema
    if found is None:
        raise ConfigurationError("schema=: give the schema, or registry= and subject=")
    wanted = checked_schema(found)
    kind = spark_type(wanted)
    writers = _Registered(known) if known else schemas
    decoder = AvroDecoder(wanted, writers, arrow_type(kind))
    return decode_in_workers(rows, decoder, kind, value=value, into=into, reject_null=reject_null)


def _latest(registry: SchemaRegistry, subject: str) -> Any:
    return avro_schema(registry, registry.version(subject))


class _Registered:
    """Writers' schemas of a registry."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def __call__(self, number: int) -> Any:
        found = self._registry.schema(number)
        if found.kind != "AVRO":
            raise RejectedError(f"the schema {number} is {found.kind} and not AVRO")
        return avro_schema(self._registry, found)
