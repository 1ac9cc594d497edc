"""The two columns that each decoder adds: the decoded value, and the reason why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["add_outcome", "check_names"]


def add_outcome(
    rows: DataFrame,
    value: str,
    into: str,
    decoded: Column,
    reason: Column,
    *,
    reject_null: bool,
) -> DataFrame:
    """The columns ``into`` and ``reason``; both are null for a value that is null."""
    from pyspark.sql import functions as f

    is_null = f.col(value).isNull()
    why_null = f.lit("there is no value" if reject_null else None).cast("string")
    with_reason = rows.withColumn("reason", f.when(is_null, why_null).otherwise(reason))
    return with_reason.withColumn(into, f.when(f.col("reason").isNull() & ~is_null, decoded))


def check_names(rows: DataFrame, value: str, into: str) -> None:
    """Checks that the value's column exists, and that the new columns do not.

    Raises:
        ConfigurationError: a column is missing or exists already.
    """
    # Spark takes names that differ in case only for the same.
    types = {field.name.lower(): field.dataType.simpleString() for field in rows.schema}
    if types.get(value.lower()) not in {"binary", "string"}:
        raise ConfigurationError(
            f"value={value!r}: name a column of bytes or text (there are {', '.join(rows.columns)})"
        )
    if into.lower() == "reason":
        raise ConfigurationError(f"into={into!r}: that column says why a value is rejected")
    for name in {into.lower(), "reason"} & types.keys():
        raise ConfigurationError(f"there is a column {name!r} already: rename it, or give into=…")
