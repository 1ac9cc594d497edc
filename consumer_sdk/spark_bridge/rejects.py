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
    """The rows without a reason, and those with one.

    The first have no column ``reason`` any more; both have all others. Of a stream, both are streams, and
    each query that is started on one of them reads the source for itself: `route_rejects` reads it once.

    Args:
        rows: what `from_json_value` and its like, or your own code, gave a ``reason``, which is
            null where there is none.

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
    """A function for ``foreachBatch``: rejects go to the dead letters, the others to ``process``.

    ::

        orders = from_json_value(read_stream(spark, url), "id BIGINT NOT NULL, amount DOUBLE")
        orders.writeStream.foreachBatch(route_rejects("kafka://host/rejects", process)).start()

    The rejects of a micro-batch are durable before ``process`` is called; if they cannot be
    written, or it raises, the query fails and the micro-batch comes again: both then see their
    rows again, ``process`` with the same number. The source is read and decoded once.

    Args:
        destination: of the rejects; with ``group`` and ``patience`` as in `write_dead_letters`.
        process: called with the accepted rows (without ``reason``) and the micro-batch's number,
            also when there are none. The rows are kept until it returns.
        group: who gives the records up.
        patience: seconds for which a task tries again what may pass.

    Raises:
        ConfigurationError: the destination is none.
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
