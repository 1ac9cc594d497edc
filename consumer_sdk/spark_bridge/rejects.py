"""Splits rows with a reason from the others, and sends them to the dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from consumer_sdk.dead_letters.urls import dead_letters_from_url
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.dead_letters.sink import write_dead_letters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["route_rejects", "split_rejects"]


def split_rejects(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Returns the rows without a reason, and the rows with one.

    The accepted rows have no column ``reason``; both have all other columns. If the rows are a
    stream, both are streams, and each query on one of them reads the source by itself.
    `route_rejects` reads it once.

    Args:
        rows: rows with a column ``reason``, from `from_json_value` and the like or from your own
            code. It is null for accepted rows.

    Raises:
        ConfigurationError: there is no such column.
    """
    if "reason" not in rows.columns:
        raise ConfigurationError(
            "there is no column 'reason': decode with from_json_value or from_avro_value first"
        )
    accepted = rows.where("reason IS NULL").drop("reason")
    return accepted, rows.where("reason IS NOT NULL")


def route_rejects(
    destination: str,
    process: Callable[[DataFrame, int], Any],
    *,
    group: str = "spark",
    patience: float = 30.0,
) -> Callable[[DataFrame, int], None]:
    """Returns a function for ``foreachBatch``: rejects go to the dead letters, other rows to ``process``.

    ::

        orders = from_json_value(read_stream(spark, url), "id BIGINT NOT NULL, amount DOUBLE")
        orders.writeStream.foreachBatch(route_rejects("kafka://host/rejects", process)).start()

    The rejects of a micro-batch are durable before ``process`` is called. If they cannot be
    written, or ``process`` raises, the query fails. Then the micro-batch is run again: its rejects
    are written again, and ``process`` gets the same number. The source is read and decoded once.

    Args:
        destination: where the rejects go, as in `write_dead_letters`.
        process: called with the accepted rows (without ``reason``) and the micro-batch's number,
            also when there are none. The rows are kept until it returns.
        group: the group that the letters name.
        patience: seconds for which a task repeats writes that fail with a transient error.

    Raises:
        ConfigurationError: the destination is invalid.
    """
    dead_letters_from_url(destination)  # refused here rather than in the first micro-batch

    def route(rows: DataFrame, number: int) -> None:
        kept = rows.persist()
        try:
            accepted, rejected = split_rejects(kept)
            write_dead_letters(rejected, destination, group=group, patience=patience)
            process(accepted, number)
        finally:
            kept.unpersist()

    return route
