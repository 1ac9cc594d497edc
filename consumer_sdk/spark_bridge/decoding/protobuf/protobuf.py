"""Protobuf values: decoded, or rejected with a reason, and never null instead.

Spark's own decoder needs another jar, and with it one bad value fails the query or becomes null. Here
Google's parser decodes in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from consumer_sdk.errors import ConfigurationError, MissingExtraError
from consumer_sdk.options import COUNT
from consumer_sdk.schema_registry import SchemaRegistry
from consumer_sdk.spark_bridge.decoding.in_workers import arrow_type, decode_in_workers, registry_of
from consumer_sdk.spark_bridge.decoding.outcomes import check_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from consumer_sdk.spark_bridge.decoding.protobuf.files import Descriptors, MessageType

__all__ = ["from_protobuf_value"]


def from_protobuf_value(
    rows: DataFrame,
    message: str | None = None,
    descriptors: Descriptors | None = None,
    *,
    registry: SchemaRegistry | str | None = None,
    subject: str | None = None,
    value: str = "value",
    into: str = "decoded",
    reject_null: bool = False,
    options: Mapping[str, str] | None = None,
    max_bytes: int = 64 * 2**20,
) -> DataFrame:
    """Adds a column for the decoded value, and a column ``reason``, which says why there is none.

    As with `consumer_sdk.spark_bridge.from_json_value`, a row is decoded, a tombstone, or rejected.
    A row is rejected if its bytes are no such message; if a field was written with another type, is
    missing (required in proto2), has an unknown enum value or is no UTF-8; or if messages are
    nested more than 100 deep.

    With ``registry`` the values begin with a zero byte, a schema id and the message's indexes. A
    value that is another message of the schema is rejected. If the registry is unreachable, the
    task fails, and no row is rejected.

    Args:
        rows: with a column of bytes.
        message: the message's full name, or its short name if that is unique. None: the first
            message of ``subject``.
        descriptors: a serialized ``FileDescriptorSet``, or the path of one on this machine, which
            ``protoc --include_imports --descriptor_set_out`` writes. None: the latest schema of
            ``subject`` at this moment.
        registry: a schema registry or its URL: the workers ask it which message a value is.
        subject: of the registry, ``"orders-value"``.
        value: the column to decode.
        into: the new column's name.
        reject_null: tombstones are rejected too.
        options: of ``from_protobuf``: ``enums.as.ints``, ``emit.default.values``,
            ``upcast.unsigned.ints``, ``unwrap.primitive.wrapper.types``,
            ``recursive.fields.max.depth``.
        max_bytes: most bytes of a value; a larger one is rejected.

    Raises:
        ConfigurationError: there is no such message, or it has no columns; a column is missing
            or exists already; an option is unknown.
        MissingExtraError: protobuf, pyspark or pyarrow is not installed, or PySpark is
            older than 4.1.
        SchemaRegistryError: the registry did not give the latest schema.
    """
    try:
        from consumer_sdk.spark_bridge.decoding.protobuf.types import (
            columns_of,
            read_options,
            struct_of,
        )
        from consumer_sdk.spark_bridge.decoding.protobuf.values import ProtobufDecoder
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        known = {"pyspark": ("pyspark", "spark")}.get(package, ("protobuf", "protobuf"))
        raise MissingExtraError(*known) from error
    COUNT.check("max_bytes", max_bytes)
    check_names(rows, value, into)
    known_registry = registry_of(registry, subject, has_schema=descriptors is not None)
    wanted = _wanted(message, descriptors, known_registry, subject)
    chosen = read_options(options or {})
    kind = struct_of(columns_of(wanted.message_class().DESCRIPTOR, chosen))
    if not kind.fields:
        raise ConfigurationError(f"message={wanted.name!r}: it has no fields that can be columns")
    decoder = ProtobufDecoder(wanted, chosen, known_registry, max_bytes, arrow_type(kind))
    return decode_in_workers(rows, decoder, kind, value=value, into=into, reject_null=reject_null)


def _wanted(
    message: str | None,
    descriptors: Descriptors | None,
    registry: SchemaRegistry | None,
    subject: str | None,
) -> MessageType:
    from consumer_sdk.spark_bridge.decoding.protobuf.files import message_type, registered_type

    if registry is not None and subject is not None:
        return registered_type(registry, subject, message)
    if message is None or descriptors is None:
        raise ConfigurationError("message=, descriptors=: give both, or registry= and subject=")
    return message_type(descriptors, message)
