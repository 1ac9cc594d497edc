"""Runs a decoder in Spark's Python workers, in an Arrow function that is given the one column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.decoding.arrow_values import ArrowDecoder
from consumer_sdk.spark_bridge.decoding.outcomes import add_outcome
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["arrow_type", "decode_in_workers"]

_PARSED = "__consumer_sdk_parsed"


def arrow_type(kind: StructType) -> Any:
    """The Arrow type of a column, as Spark's workers want it."""
    import_pyarrow()
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC")


def decode_in_workers(
    rows: DataFrame,
    decoder: ArrowDecoder,
    kind: StructType,
    *,
    value: str,
    into: str,
    reject_null: bool,
) -> DataFrame:
    """The rows with the columns ``into``, of type ``kind``, and ``reason``."""
    array = import_pyarrow().Array
    require_pyspark("4.1")  # the first with functions on Arrow's arrays
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import StringType
    from pyspark.sql.types import StructType as Struct

    answer = Struct().add("value", kind).add("reason", StringType())
    typed = _annotated(lambda values: decoder.decode(values), array)
    decode = arrow_udf(typed, answer)  # type: ignore[call-overload]  # its stubs know no type hints
    parsed = rows.withColumn(_PARSED, decode(f.col(value).cast("binary")))
    decoded, reason = f.col(_PARSED)["value"], f.col(_PARSED)["reason"]
    return add_outcome(parsed, value, into, decoded, reason, reject_null=reject_null).drop(_PARSED)


def _annotated(function: Callable[[Any], Any], array: type) -> Callable[[Any], Any]:
    """With types for Spark to see; written as annotations they would be texts, which it evaluates."""
    function.__annotations__ = {"values": array, "return": array}
    return function
