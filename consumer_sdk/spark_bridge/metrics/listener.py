"""The listener that hands Spark's reports on to a `SourceMetrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

if TYPE_CHECKING:
    from consumer_sdk.spark_bridge.metrics.metrics import SourceMetrics

__all__ = ["ProgressListener"]


class ProgressListener(StreamingQueryListener):
    """Tells a `SourceMetrics` of the session's queries."""

    def __init__(self, metrics: SourceMetrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """A run begins."""
        self._metrics.started(str(event.id), str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A micro-batch is done."""
        self._metrics.progress(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """A trigger found nothing to do."""
        self._metrics.idle(str(event.id), str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """A query has ended."""
        query, run = str(event.id), str(event.runId)
        self._metrics.terminated(query, run, has_failed=event.exception is not None)
