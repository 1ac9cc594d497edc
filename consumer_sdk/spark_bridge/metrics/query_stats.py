"""Snapshots of streaming queries, made from Spark's progress reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from consumer_sdk.spark_bridge.metrics.lag import (
    FEED,
    Lag,
    Origin,
    read_lag,
    read_offset,
    read_origin,
)

__all__ = [
    "BYTES",
    "Progress",
    "QueryCounts",
    "QuerySnapshot",
    "QueryStats",
    "SourceId",
    "SourceStats",
    "add_progress",
]

BYTES = "consumer_sdk_bytes"
"""The observation that counts bytes, and what its name begins with."""


class Source(Protocol):
    """What is used of Spark's ``SourceProgress``."""

    @property
    def description(self) -> str: ...
    @property
    def endOffset(self) -> str: ...  # noqa: N802 - Spark's
    @property
    def latestOffset(self) -> str: ...  # noqa: N802 - Spark's
    @property
    def numInputRows(self) -> int: ...  # noqa: N802 - Spark's


class Progress(Protocol):
    """What is used of Spark's ``StreamingQueryProgress``."""

    @property
    def id(self) -> Any: ...
    @property
    def runId(self) -> Any: ...  # noqa: N802 - Spark's
    @property
    def name(self) -> str | None: ...
    @property
    def batchId(self) -> int: ...  # noqa: N802 - Spark's
    @property
    def timestamp(self) -> str: ...
    @property
    def durationMs(self) -> Mapping[str, int]: ...  # noqa: N802 - Spark's
    @property
    def inputRowsPerSecond(self) -> float: ...  # noqa: N802 - Spark's
    @property
    def processedRowsPerSecond(self) -> float: ...  # noqa: N802 - Spark's
    @property
    def observedMetrics(self) -> Mapping[str, Any]: ...  # noqa: N802 - Spark's
    @property
    def sources(self) -> Sequence[Source]: ...


@dataclass(frozen=True, slots=True)
class SourceId:
    """Which source of a query something is of.

    Attributes:
        index: the source's place in the query, from 0.
        origin: what it reads from; None where no report has said so.
        stream: the only one that it reads, or the feed's directory; empty where it is not one.
    """

    index: int
    origin: Origin | None
    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStats:
    """What one source of a query has read.

    Attributes:
        index: the source's place in the query, from 0.
        rows: read in this run. Spark counts rows again when a query reads them more than once.
        lag: after the last micro-batch.
        origin: what it reads from; None where no report has said so.
    """

    index: int
    rows: int
    lag: Lag
    origin: Origin | None = None

    @property
    def id(self) -> SourceId:
        """Which one it is."""
        directory = self.origin.directory if self.origin else None
        streams = {each.stream for each in self.lag.behind if each != FEED}
        stream = directory or (min(streams) if len(streams) == 1 else "")
        return SourceId(self.index, self.origin, stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStats:
    """What a streaming query has done in this run, as of its last report.

    Attributes:
        query_id: the same after a restart from the checkpoint.
        run_id: of this run.
        name: the query's name, or its id if it has none.
        batch: the number of the last micro-batch.
        at: when that micro-batch began, as Spark writes it (ISO 8601, UTC).
        batches: micro-batches that were reported in this run.
        rows: rows that the bridge's sources have read, in all.
        bytes: bytes of keys and values, if `count_bytes` counts them; otherwise None.
        rows_per_second: rows a second that came in, in the last micro-batch, from all sources of
            the query.
        processed_rows_per_second: rows a second that were processed, in the last micro-batch, from
            all sources.
        batch_seconds: seconds that the last micro-batch took.
        sources: the query's sources of the bridge.
        is_idle: the last trigger found nothing to do.
        is_active: the query runs.
        has_failed: the query ended with an error.
        heard: when its last report came, in seconds since the epoch.
    """

    query_id: str
    run_id: str
    name: str
    batch: int
    at: str
    batches: int
    rows: int
    bytes: int | None
    rows_per_second: float
    processed_rows_per_second: float
    batch_seconds: float
    sources: tuple[SourceStats, ...]
    is_idle: bool = False
    is_active: bool = True
    has_failed: bool = False
    heard: float = 0.0

    def idle(self) -> QueryStats:
        """These values after a trigger that found nothing to do."""
        return replace(self, is_idle=True, rows_per_second=0.0, processed_rows_per_second=0.0)

    def restarted(self, run_id: str) -> QueryStats:
        """These values at the start of a new run."""
        known = replace(self.idle(), run_id=run_id, is_idle=False, is_active=True, has_failed=False)
        unread = tuple(
            replace(each, rows=0, lag=Lag(each.lag.unit, dict.fromkeys(each.lag.behind)))
            for each in self.sources
        )
        size = None if self.bytes is None else 0
        return replace(known, batches=0, rows=0, bytes=size, sources=unread)

    def ended(self, *, has_failed: bool) -> QueryStats:
        """These values after the query's end."""
        return replace(self.idle(), is_active=False, has_failed=has_failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCounts:
    """What the queries of one name have done since they were watched first; it never falls.

    Attributes:
        batches: micro-batches.
        failures: runs that ended with an error.
        bytes: of keys and values; None where nobody counts them.
        rows: read by each source.
    """

    batches: int = 0
    failures: int = 0
    bytes: int | None = None
    rows: Mapping[SourceId, int] = field(default_factory=dict)

    def plus(self, before: QueryStats | None, after: QueryStats) -> QueryCounts:
        """With what a query has done between two snapshots of it."""
        if before is None or before.run_id != after.run_id:
            before = after.restarted(after.run_id)
        rows, known = dict(self.rows), {each.index: each.rows for each in before.sources}
        for each in after.sources:
            rows[each.id] = rows.get(each.id, 0) + each.rows - known.get(each.index, 0)
        size = None if after.bytes is None else after.bytes - (before.bytes or 0)
        return QueryCounts(
            batches=self.batches + after.batches - before.batches,
            failures=self.failures + (after.has_failed and not before.has_failed),
            bytes=self.bytes if size is None else size + (self.bytes or 0),
            rows=rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySnapshot:
    """The queries of one name at one moment: one runs, or none.

    Attributes:
        time: seconds since the epoch.
        last: of the one that runs, or that ended last.
        counts: of all of them.
    """

    time: float
    last: QueryStats
    counts: QueryCounts

    @property
    def is_running(self) -> bool:
        """One of them runs."""
        return self.last.is_active


def add_progress(before: QueryStats | None, progress: Progress) -> QueryStats | None:
    """The snapshot after a report; None when no source of the query is the bridge's.

    Args:
        before: the snapshot before it; of another run, it counts as none.
        progress: what Spark reports.
    """
    if before is not None and before.run_id != str(progress.runId):
        before = before.restarted(str(progress.runId))
    sources = tuple(_sources(before, progress))
    if not sources:
        return None
    return QueryStats(
        query_id=str(progress.id),
        run_id=str(progress.runId),
        name=progress.name or str(progress.id),
        batch=progress.batchId,
        at=progress.timestamp,
        batches=1 + (before.batches if before else 0),
        rows=sum(each.rows for each in sources),
        bytes=_bytes(before, progress.observedMetrics),
        rows_per_second=progress.inputRowsPerSecond,
        processed_rows_per_second=progress.processedRowsPerSecond,
        batch_seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
        sources=sources,
    )


def _sources(before: QueryStats | None, progress: Progress) -> Iterator[SourceStats]:
    known = {each.index: each for each in before.sources} if before else {}
    for index, source in enumerate(progress.sources):
        latest = read_offset(source.latestOffset)
        lag = read_lag(read_offset(source.endOffset), latest)
        if lag is not None:
            last = known.get(index)
            total = (last.rows if last else 0) + max(0, source.numInputRows)
            # Of a micro-batch that it repeats after a restart, Spark reports no latest offset.
            origin = read_origin(latest) or (last.origin if last else None)
            yield SourceStats(index=index, rows=total, lag=lag, origin=origin)


def _bytes(before: QueryStats | None, observed: Mapping[str, Any]) -> int | None:
    counts = [row["bytes"] for name, row in observed.items() if name.startswith(BYTES)]
    known = before.bytes if before else None
    return (known or 0) + sum(counts) if counts else known
