"""Avro values with a schema: decoded, or rejected with a reason, and never null instead.

Spark's own decoder is a jar apart, and with it one bad value fails the query or becomes null. Here
fastavro decodes in Spark's Python workers, in an Arrow function that is given the one column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.decoding import add_outcome, check_names
from consumer_sdk.spark_bridge.decoding_avro_types import AvroSchema, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from consumer_sdk.spark_bridge.decoding_avro_values import Schemas

__all__ = ["from_avro_value"]

_PARSED = "__consumer_sdk_avro"


def from_avro_value(
    rows: DataFrame,
    schema: AvroSchema,
    *,
    schemas: Schemas | None = None,
    value: str = "value",
    into: str = "decoded",
    reject_null: bool = False,
) -> DataFrame:
    """The rows with a column for the decoded value, and one, ``reason``, for why there is none.

    As `consumer_sdk.spark_bridge.from_json_value`: a row is decoded, a tombstone, or rejected: its
    bytes are no value of the schema, end too early or too late, or name a schema that nobody knows.

    Args:
        rows: with a column of bytes.
        schema: of a record, as JSON text or Python values. With ``schemas`` it is the reader's,
            and what was written with an older or newer one becomes its values.
        schemas: the values have the head of Confluent's schema registry, a zero and the number of
            the writer's schema; this knows the schemas by their number. A function is called in
            the workers, once for each number and task; what it raises, other than LookupError,
            fails the task, since a registry that is away makes no value a bad one.
        value: the column to decode.
        into: the new column's name.
        reject_null: tombstones are rejected too.

    Raises:
        ConfigurationError: the schema is none, or has no Spark type; a column is missing or
            exists already.
        MissingExtraError: fastavro, pyspark or pyarrow is not installed.
    """
    try:
        from consumer_sdk.spark_bridge.decoding_avro_values import Decoder, checked_schema
    except ModuleNotFoundError as error:
        raise MissingExtraError("fastavro", "avro") from error
    array = import_pyarrow().Array
    check_names(rows, value, into)
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructType

    wanted = checked_schema(schema)
    kind = spark_type(wanted)
    decoder = Decoder(wanted, schemas, to_arrow_type(kind, timezone="UTC"))
    answer = StructType().add("value", kind).add("reason", StringType())
    typed = _annotated(lambda values: decoder.decode(values), array)
    decode = arrow_udf(typed, answer)  # type: ignore[call-overload]  # its stubs know no type hints
    parsed = rows.withColumn(_PARSED, decode(f.col(value).cast("binary")))
    decoded, reason = f.col(_PARSED)["value"], f.col(_PARSED)["reason"]
    return add_outcome(parsed, value, into, decoded, reason, reject_null=reject_null).drop(_PARSED)


def _annotated(function: Callable[[Any], Any], array: type) -> Callable[[Any], Any]:
    """With types for Spark to see; written as annotations they would be texts, which it evaluates."""
    function.__annotations__ = {"values": array, "return": array}
    return function
