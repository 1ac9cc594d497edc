"""Snapshots of streaming queries, made from Spark's progress reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from consumer_sdk.spark_bridge.lag import Lag, read_lag

__all__ = ["BYTES", "Progress", "QueryStats", "Sample", "SourceStats", "add_progress"]

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


class Sample(NamedTuple):
    """One number, as Prometheus and its like take it."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStats:
    """What one source of a query has read.

    Attributes:
        index: the source's place in the query, from 0.
        rows: read in this run. Spark counts rows again when a query reads them more than once.
        lag: after the last micro-batch.
    """

    index: int
    rows: int
    lag: Lag


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStats:
    """What a streaming query has done in this run, as of its last report.

    Attributes:
        query_id: the same after a restart from the checkpoint.
        run_id: of this run.
        name: as the query was given it, else its id.
        batch: the number of the last micro-batch.
        at: when that began, as Spark writes it (ISO 8601, UTC).
        batches: reported in this run.
        rows: read by the bridge's sources; the sum of theirs.
        bytes: of keys and values, where `count_bytes` counts them; else None.
        rows_per_second: that came in, in the last micro-batch, from all sources of the query.
        processed_rows_per_second: in the last micro-batch, likewise.
        batch_seconds: that the last micro-batch took.
        sources: those of the bridge.
        is_idle: the last trigger found nothing to do.
        is_active: it runs.
        has_failed: it ended with an error.
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

    def idle(self) -> QueryStats:
        """The same, after a trigger that found nothing to do."""
        return replace(self, is_idle=True, rows_per_second=0.0, processed_rows_per_second=0.0)

    def restarted(self, run_id: str) -> QueryStats:
        """A new run, of which nothing is known but that it began."""
        known = replace(self.idle(), run_id=run_id, is_idle=False, is_active=True, has_failed=False)
        unread = tuple(replace(each, rows=0) for each in self.sources)
        size = None if self.bytes is None else 0
        return replace(known, batches=0, rows=0, bytes=size, sources=unread)

    def ended(self, *, has_failed: bool) -> QueryStats:
        """The same, after its end."""
        return replace(self.idle(), is_active=False, has_failed=has_failed)

    def samples(self) -> Iterator[Sample]:
        """All of it as numbers with labels; what is not known is left out."""
        query = {"query": self.name}
        yield Sample("consumer_sdk_spark_batches_total", query, self.batches)
        yield Sample("consumer_sdk_spark_rows_total", query, self.rows)
        if self.bytes is not None:
            yield Sample("consumer_sdk_spark_bytes_total", query, self.bytes)
        yield Sample("consumer_sdk_spark_rows_per_second", query, self.rows_per_second)
        yield Sample("consumer_sdk_spark_batch_seconds", query, self.batch_seconds)
        yield Sample("consumer_sdk_spark_active", query, self.is_active)
        for source in self.sources:
            yield from _lag_samples(source, query)


def _lag_samples(source: SourceStats, query: Mapping[str, str]) -> Iterator[Sample]:
    labels = {**query, "source": str(source.index), "unit": source.lag.unit}
    for partition, behind in source.lag.behind.items():
        if behind is not None:
            place = {"stream": partition.stream, "partition": partition.id}
            yield Sample("consumer_sdk_spark_lag", {**labels, **place}, behind)


def add_progress(before: QueryStats | None, progress: Progress) -> QueryStats | None:
    """The snapshot after a report; None when no source of the query is the bridge's.

    Args:
        before: the snapshot before it; of another run, it counts as none.
        progress: what Spark reports.
    """
    if before is not None and before.run_id != str(progress.runId):
        before = None
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
    rows = {each.index: each.rows for each in before.sources} if before else {}
    for index, source in enumerate(progress.sources):
        lag = read_lag(source.endOffset, source.latestOffset)
        if lag is not None:
            total = rows.get(index, 0) + source.numInputRows
            yield SourceStats(index=index, rows=total, lag=lag)


def _bytes(before: QueryStats | None, observed: Mapping[str, Any]) -> int | None:
    counts = [row["bytes"] for name, row in observed.items() if name.startswith(BYTES)]
    known = before.bytes if before else None
    return (known or 0) + sum(counts) if counts else known
