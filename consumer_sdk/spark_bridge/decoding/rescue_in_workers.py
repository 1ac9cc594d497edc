"""The column for what does not fit a schema, made in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.decoding.rescued import rescue
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["check_rescued", "rescue_in_workers"]


def check_rescued(rows: DataFrame, schema: StructType, rescued: str, into: str) -> None:
    """Sees that the column can be added.

    Raises:
        ConfigurationError: its name is taken, or the schema has a VARIANT, whose parts have no columns.
    """
    taken = {name.lower() for name in (*rows.columns, into, "reason")}
    if rescued.lower() in taken or not rescued:
        raise ConfigurationError(f"rescued={rescued!r}: there is such a column already")
    if "variant" in schema.simpleString():
        raise ConfigurationError("rescued=: a schema with a VARIANT has room for all values")


def rescue_in_workers(text: Column, decoded: Column) -> Column:
    """A struct of the rest as ``value``, and of a ``reason`` why there is none."""
    array = import_pyarrow().Array
    require_pyspark("4.1")  # the first with functions on Arrow's arrays
    from pyspark.sql.pandas.functions import arrow_udf

    typed = _annotated(lambda texts, rows: rescue(texts, rows), array)
    call = arrow_udf(typed, "value STRING, reason STRING")  # type: ignore[call-overload]  # its stubs know no type hints
    found: Column = call(text, decoded)
    return found


def _annotated(function: Callable[[Any, Any], Any], array: type) -> Callable[[Any, Any], Any]:
    """With types for Spark to see; written as annotations they would be texts, which it evaluates."""
    function.__annotations__ = {"texts": array, "rows": array, "return": array}
    return function
