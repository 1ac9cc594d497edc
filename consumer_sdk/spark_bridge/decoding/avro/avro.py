"""Avro values with a schema: decoded, or rejected with a reason, and never null instead.

Spark's own decoder needs another jar, and with it one bad value fails the query or becomes null. Here
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
    """Adds a column for the decoded value, and a column ``reason``, which says why there is none.

    As with `consumer_sdk.spark_bridge.from_json_value`, a row is decoded, a tombstone, or rejected.
    A row is rejected if its bytes are no value of the schema, end too early or too late, or name an
    unknown schema.

    With ``registry`` or ``schemas`` the values begin with a zero byte and the id of the writer's
    schema, and are resolved to the reader's schema. If the registry is unreachable, the task fails,
    and no row is rejected.

    Args:
        rows: with a column of bytes.
        schema: the reader's schema of a record, as JSON text or Python values. None: the latest
            schema of ``subject`` at this moment.
        schemas: writers' schemas by id, in place of a registry. A function is called in the
            workers, once for each id and task. Any error other than LookupError fails the task.
        registry: a schema registry or its URL: the workers ask it for writers' schemas.
        subject: of the registry, ``"orders-value"``.
        value: the column to decode.
        into: the new column's name.
        reject_null: tombstones are rejected too.

    Raises:
        ConfigurationError: the schema is invalid, or has no Spark type; or a column is missing or
            exists already.
        MissingExtraError: fastavro, pyspark or pyarrow is not installed, or PySpark is
            older than 4.1.
        SchemaRegistryError: the registry did not give the latest schema.
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
