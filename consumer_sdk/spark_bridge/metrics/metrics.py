"""Rows, bytes and lag of streaming queries: a Python source cannot add metrics to Spark's own.

Spark reports each micro-batch to listeners in the driver, with the source's own offsets. The lag follows
from these, and nobody asks the broker for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.metrics.query_stats import (
    BYTES,
    Progress,
    QueryCounts,
    QuerySnapshot,
    QueryStats,
    add_progress,
)
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SourceMetrics", "count_bytes", "watch"]

log = logging.getLogger(__name__)

_MOST_ENDED = 100
_MOST_RUNS = 1000
"""Runs that have ended and are remembered as such: nothing brings them back to life."""


class SourceMetrics:
    """Counts what the queries of one Spark session read from the bridge's sources.

    Queries without such a source are ignored. Use it in a ``with`` block, or call `close`.

    Args:
        callback: called with a query's snapshot after each of its reports: a micro-batch, an idle
            trigger, its end. It runs in a thread that Spark's reports come through, so it
            should be quick. What it raises is logged and counted, and never reaches the query.
        clock: seconds since the epoch.

    Concurrency: any thread may ask. A report comes about a tenth of a second after its micro-batch,
        and none is lost.
    """

    def __init__(
        self,
        callback: Callable[[QueryStats], Any] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._callback = callback
        self._clock = clock
        self._lock = threading.Lock()
        self._queries: dict[str, QueryStats] = {}
        self._counts: dict[str, QueryCounts] = {}
        self._over: dict[tuple[str, str], None] = {}
        self._is_closed = False
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
        """A snapshot of each query, oldest first; of ended queries, the last hundred."""
        with self._lock:
            return tuple(self._queries.values())

    def measured(self) -> tuple[QuerySnapshot, ...]:
        """What `telemetry.collector` and `telemetry.otel` read; nothing once it is closed."""
        with self._lock:
            last: dict[str, QueryStats] = {}
            for each in () if self._is_closed else self._queries.values():
                known = last.get(each.name)
                if known is None or each.is_active or not known.is_active:
                    last[each.name] = each
            now = self._clock()
            return tuple(
                QuerySnapshot(time=now, last=each, counts=self._counts[name])
                for name, each in last.items()
            )

    def close(self) -> None:
        """Stops listening; earlier reports stay in `stats`. Idempotent."""
        self._is_closed = True
        detach, self._detach = self._detach, None
        if detach is not None:
            detach()

    # -- what the listener tells --------------------------------------------------------------

    def started(self, query_id: str, run_id: str) -> None:
        """A query has started. It is known to have a source of the bridge only if it ran before."""

        def start(before: QueryStats | None) -> QueryStats | None:
            if before is None or before.run_id == run_id or (query_id, run_id) in self._over:
                return None
            return before.restarted(run_id)

        self._update(query_id, start)

    def progress(self, progress: Progress) -> None:
        """A micro-batch is done. One of a run that has ended is only counted."""

        def add(before: QueryStats | None) -> QueryStats | None:
            found = add_progress(before, progress)
            if found is None or (found.query_id, found.run_id) not in self._over:
                return found
            if before is None or before.run_id != found.run_id:
                return None  # another run has followed
            return found.ended(has_failed=before.has_failed)

        self._update(str(progress.id), add)

    def idle(self, query_id: str, run_id: str) -> None:
        """A trigger found nothing to do."""

        def idle(before: QueryStats | None) -> QueryStats | None:
            return before.idle() if before and before.run_id == run_id else None

        self._update(query_id, idle)

    def terminated(self, query_id: str, run_id: str, *, has_failed: bool) -> None:
        """A query has ended; a later run of it may have reported already."""

        def end(before: QueryStats | None) -> QueryStats | None:
            self._end(query_id, run_id)
            if before is None or before.run_id != run_id:
                return None
            return before.ended(has_failed=has_failed)

        self._update(query_id, end)

    def _update(
        self, query_id: str, change: Callable[[QueryStats | None], QueryStats | None]
    ) -> None:
        with self._lock:
            before = self._queries.get(query_id)
            found = change(before)
            if found is None:
                return
            if before is not None and before.run_id != found.run_id:
                self._end(query_id, before.run_id)
            found = replace(found, heard=self._clock())
            self._queries[query_id] = found
            counts = self._counts.get(found.name, QueryCounts())
            self._counts[found.name] = counts.plus(before, found)
            self._forget()
        self._tell(found)

    def _end(self, query_id: str, run_id: str) -> None:
        self._over[query_id, run_id] = None
        if len(self._over) > _MOST_RUNS:
            del self._over[next(iter(self._over))]

    def _forget(self) -> None:
        ended = [id_ for id_, each in self._queries.items() if not each.is_active]
        if len(ended) <= _MOST_ENDED:
            return
        for id_ in ended[:-_MOST_ENDED]:
            del self._queries[id_]
        names = {each.name for each in self._queries.values()}
        self._counts = {name: each for name, each in self._counts.items() if name in names}

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
    """Listens to all streaming queries of a session, also those that run already.

    ::

        queries = spark_bridge.watch(spark, lambda query: print(query.name, query.sources))
        REGISTRY.register(telemetry.collector(queries))

    Args:
        spark: the session.
        callback: see `SourceMetrics`.

    Raises:
        MissingExtraError: pyspark is not installed, or older than 4.0.
    """
    require_pyspark()
    from consumer_sdk.spark_bridge.metrics.listener import ProgressListener

    metrics = SourceMetrics(callback)
    listener = ProgressListener(metrics)
    spark.streams.addListener(listener)
    metrics._detach = lambda: spark.streams.removeListener(listener)  # noqa: SLF001 - its maker
    return metrics


def count_bytes(rows: DataFrame, name: str = "") -> DataFrame:
    """Returns the same rows, and makes the query's `QueryStats` count the bytes of their keys and values.

    Args:
        rows: with ``value``, and ``key`` if there is one. Count before rows are filtered.
        name: the name of this count: each one in a query needs its own.

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
