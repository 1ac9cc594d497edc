"""Rows, bytes and lag of streaming queries: Spark has no place for them in a Python source.

Spark reports each micro-batch to listeners in the driver, with the source's own offsets; from
these the lag follows, without a question to the broker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark
from consumer_sdk.spark_bridge.query_stats import (
    BYTES,
    Progress,
    QueryStats,
    Sample,
    add_progress,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SourceMetrics", "count_bytes", "watch"]

log = logging.getLogger(__name__)

_MOST_ENDED = 100


class SourceMetrics:
    """What the queries of one Spark session have read, from the bridge's sources.

    Queries without such a source are ignored. Use it in a ``with`` block, or call `close`.

    Args:
        callback: called with a query's snapshot after each of its reports: a micro-batch, an idle
            trigger, its end. It runs in a thread that Spark's reports come through, so it
            should be quick. What it raises is logged and counted, and never reaches the query.

    Concurrency: any thread may ask. Reports come later than what they report, by a tenth of a
    second or so; they are not lost.
    """

    def __init__(self, callback: Callable[[QueryStats], Any] | None = None) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._queries: dict[str, QueryStats] = {}
        self._detach: Callable[[], Any] | None = None
        self._errors = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def callback_errors(self) -> int:
        """How often the callback raised."""
        return self._errors

    def stats(self) -> tuple[QueryStats, ...]:
        """A snapshot of each query, oldest first; of those that have ended, the last hundred."""
        with self._lock:
            return tuple(self._queries.values())

    def samples(self) -> Iterator[Sample]:
        """The same as numbers with labels, for a collector that asks when it wants to know."""
        for query in self.stats():
            yield from query.samples()

    def close(self) -> None:
        """Hears no more reports; what it has heard stays. Idempotent."""
        detach, self._detach = self._detach, None
        if detach is not None:
            detach()

    # -- what the listener tells --------------------------------------------------------------

    def started(self, query_id: str, run_id: str) -> None:
        """A query runs; whether it has a source of the bridge is known if it ran before."""
        self._update(query_id, lambda before: before and before.restarted(run_id))

    def progress(self, progress: Progress) -> None:
        """A micro-batch is done."""
        self._update(str(progress.id), lambda before: add_progress(before, progress))

    def idle(self, query_id: str, run_id: str) -> None:
        """A trigger found nothing to do."""

        def idle(before: QueryStats | None) -> QueryStats | None:
            return before.idle() if before and before.run_id == run_id else None

        self._update(query_id, idle)

    def terminated(self, query_id: str, run_id: str, *, has_failed: bool) -> None:
        """A query has ended; a later run of it may have reported already."""

        def end(before: QueryStats | None) -> QueryStats | None:
            if before is None or before.run_id != run_id:
                return None
            return before.ended(has_failed=has_failed)

        self._update(query_id, end)

    def _update(
        self, query_id: str, change: Callable[[QueryStats | None], QueryStats | None]
    ) -> None:
        with self._lock:
            found = change(self._queries.get(query_id))
            if found is None:
                return
            self._queries[query_id] = found
            self._forget()
        self._tell(found)

    def _forget(self) -> None:
        ended = [name for name, each in self._queries.items() if not each.is_active]
        for name in ended[:-_MOST_ENDED]:
            del self._queries[name]

    def _tell(self, stats: QueryStats) -> None:
        if self._callback is None:
            return
        try:
            self._callback(stats)
        except Exception:
            self._errors += 1
            log.exception("the callback for the metrics of query %s failed", stats.name)


def watch(
    spark: SparkSession, callback: Callable[[QueryStats], Any] | None = None
) -> SourceMetrics:
    """Hears of all streaming queries of a session, those that run already too.

    ::

        metrics = spark_bridge.watch(spark, lambda query: print(query.name, query.sources))
        ...
        for name, labels, value in metrics.samples(): ...

    Args:
        spark: the session.
        callback: see `SourceMetrics`.

    Raises:
        MissingExtraError: pyspark is not installed, or older than 4.0.
    """
    require_pyspark()
    from consumer_sdk.spark_bridge.listener import ProgressListener

    metrics = SourceMetrics(callback)
    listener = ProgressListener(metrics)
    spark.streams.addListener(listener)
    metrics._detach = lambda: spark.streams.removeListener(listener)  # noqa: SLF001 - its maker
    return metrics


def count_bytes(rows: DataFrame, name: str = "") -> DataFrame:
    """The same rows; the query's `QueryStats` then tell the bytes of their keys and values.

    Args:
        rows: with ``value``, and ``key`` if there is one. Count before rows are filtered.
        name: tells several apart in one query: each needs its own.

    Raises:
        ConfigurationError: there is no column ``value``.
    """
    if "value" not in rows.columns:
        raise ConfigurationError("there is no column 'value': count the bytes of a source's rows")
    from pyspark.sql import functions as f

    sizes = [f.octet_length(name) for name in ("key", "value") if name in rows.columns]
    zero = f.lit(0).cast("bigint")
    size = sum((f.coalesce(each, zero) for each in sizes), start=zero)
    return rows.observe(
        f"{BYTES}{name and ':'}{name}", f.coalesce(f.sum(size), zero).alias("bytes")
    )
